function main() {
    this.init = function () { this.totalValue = 0.0; this.totalWeight = 0.0; }
    this.accumulate = function (value, timestamp) {
        this.totalValue += value.level * value.weight;
        this.totalWeight += value.weight;
    }
    this.computeResult = function () {
        if (this.totalValue == 0) { result = 0; } else { result = this.totalValue / this.totalWeight; }
        return result;
    }
}
