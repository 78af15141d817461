function main(plate) { return plate.slice(0, 3) + '***'; }
