function main(x) {
    retur x;
}
