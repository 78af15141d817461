var seen = 0;
function main(x) {
    seen = seen + 1;
    count = seen;
    if (x === 'bad') {
        return x.y.z;
    }
    return { x: x, count: count };
}
