function main() {
    this.init = function () { this.first = null; };
    this.accumulate = function (value, timestamp) {
        if (this.first === null) { this.first = timestamp; }
        this.last = timestamp;
    };
    this.deaccumulate = function (value, timestamp) { throw new Error('never called'); };
    this.computeResult = function () { return (this.last - this.first) / 1000; };
}
