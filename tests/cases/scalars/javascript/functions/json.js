function main(x) { return JSON.stringify(x); }
