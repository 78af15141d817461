// Convert Hex value to integer.
function hex2Int(hexValue) {
    return parseInt(hexValue, 16);
}
