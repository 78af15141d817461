function main(when) { return new Date(when.getTime() + 24 * 60 * 60 * 1000); }
