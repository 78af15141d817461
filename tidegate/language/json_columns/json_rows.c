/*
 * Columns into JSON text, a row at a time: what a query writes.
 *
 * Law: integers are written in decimals, strings between quotes as they are (whoever calls knows that none needs an escape),
 * texts as they are, and what is not there as null. Times are written as ISO 8601 with as few digits of the second as they need. Floats
 * are written as Python's repr does where at most 15 digits say them exactly; at the first other one, or a time beyond the years 1 to 9999,
 * the function gives up and names its column.
 *
 * It knows nothing of Python and is called through ctypes.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { INTEGER = 0, FLOAT = 1, TEXT = 2, QUOTED = 3, DATETIME = 4 };

#define EXACT_BELOW 1e15
#define EXPONENT_BELOW 1e-4
#define PLACES 22 /* powers of ten up to this are exact */
#define SECOND_US 1000000
#define DAY_S 86400
#define FIRST_US (-62135596800 * SECOND_US) /* 0001-01-01 */
#define END_US (253402300800 * SECOND_US)   /* 10000-01-01 */

typedef struct {
    const char *before; /* what stands before each value */
    int64_t before_length;
    const uint8_t *valid; /* Arrow's bitmap; NULL: all are there */
    const void *values;   /* int64 (of times microseconds since 1970), double, or the bytes of texts */
    const int32_t *ends;  /* of texts */
    int64_t first;        /* the first row's place in all of these */
    int64_t kind;
} tg_column;

static uint8_t *copied(uint8_t *to, const void *from, int64_t length) {
    memcpy(to, from, length);
    return to + length;
}

static uint8_t *decimals(uint8_t *to, uint64_t number) {
    uint8_t digits[20];
    int count = 0;
    do
        digits[count++] = '0' + number % 10;
    while (number /= 10);
    while (count)
        *to++ = digits[--count];
    return to;
}

static uint8_t *integer(uint8_t *to, int64_t number) {
    if (number >= 0)
        return decimals(to, (uint64_t)number);
    *to++ = '-';
    return decimals(to, -(uint64_t)number);
}

/* The digits of a number below EXPONENT_BELOW as repr writes them: one of them, the others behind a point, and the exponent. */
static uint8_t *with_exponent(uint8_t *to, uint64_t digits, int places) {
    uint8_t text[20];
    int count = (int)(decimals(text, digits) - text), exponent = places - count + 1;
    *to++ = text[0];
    if (count > 1) {
        *to++ = '.';
        to = copied(to, text + 1, count - 1);
    }
    to = copied(to, "e-", 2);
    *to++ = '0' + exponent / 10;
    *to++ = '0' + exponent % 10;
    return to;
}

/*
 * The decimal with the fewest places that is this float; NULL if it has more than 15 digits, or is too large or too small.
 *
 * No two decimals of at most 15 digits are the same float, so that this one is also the shortest. A product that is off in
 * its last bit is rounded to the right integer as long as that has so few digits, and the division tells whether it is right.
 */
static uint8_t *fraction(uint8_t *to, double number) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double size = fabs(number);
    for (int places = 0; places <= PLACES; places++) {
        double all = rint(size * power[places]);
        if (!(all < EXACT_BELOW))
            return NULL;
        if (all / power[places] != size)
            continue;
        if (signbit(number))
            *to++ = '-';
        uint64_t digits = (uint64_t)all;
        if (digits && size < EXPONENT_BELOW)
            return with_exponent(to, digits, places);
        uint64_t unit = (uint64_t)power[places];
        to = decimals(to, digits / unit);
        *to++ = '.';
        uint8_t *end = to + (places ? places : 1);
        for (uint64_t rest = digits % unit, at = end - to; at--; rest /= 10)
            to[at] = '0' + rest % 10;
        return end;
    }
    return NULL;
}

/* A number with leading zeros, and what stands behind it. */
static uint8_t *padded(uint8_t *to, int64_t number, int width, char behind) {
    for (int at = width; at--; number /= 10)
        to[at] = '0' + number % 10;
    to[width] = behind;
    return to + width + 1;
}

/* Years begin in March, so that the day that some years lack is their last one. */
static uint8_t *datetime(uint8_t *to, int64_t tick) {
    if (tick < FIRST_US || tick >= END_US)
        return NULL;
    int64_t since = tick - FIRST_US, second = since / SECOND_US % DAY_S, fraction_us = since % SECOND_US;
    int64_t days = since / SECOND_US / DAY_S + 306, century = (4 * days + 3) / 146097, of_century = days - century * 146097 / 4;
    int64_t year = (4 * of_century + 3) / 1461, of_year = of_century - year * 1461 / 4, month = (5 * of_year + 2) / 153;
    *to++ = '"';
    to = padded(to, 100 * century + year + (month > 9), 4, '-');
    to = padded(to, month > 9 ? month - 9 : month + 3, 2, '-');
    to = padded(to, of_year - (153 * month + 2) / 5 + 1, 2, 'T');
    to = padded(to, second / 3600, 2, ':');
    to = padded(to, second / 60 % 60, 2, ':');
    to = padded(to, second % 60, 2, fraction_us ? '.' : 'Z');
    if (fraction_us)
        to = fraction_us % 1000 ? padded(to, fraction_us, 6, 'Z') : padded(to, fraction_us / 1000, 3, 'Z');
    *to++ = '"';
    return to;
}

/*
 * Write *rows* rows, *after* at the end of each; *ends* has room for one more than there are. Return how many bytes were
 * written, or the number of the column with a float or time that is not plain, as -1 less that.
 */
int64_t tg_json_rows(const tg_column *columns, int64_t count, const char *after, int64_t after_length, int64_t rows, uint8_t *out,
                     int32_t *ends) {
    uint8_t *to = out;
    ends[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        for (const tg_column *column = columns; column < columns + count; column++) {
            int64_t at = column->first + row;
            to = copied(to, column->before, column->before_length);
            if (column->valid && !(column->valid[at >> 3] >> (at & 7) & 1)) {
                to = copied(to, "null", 4);
            } else if (column->kind == INTEGER) {
                to = integer(to, ((const int64_t *)column->values)[at]);
            } else if (column->kind == FLOAT) {
                if (!(to = fraction(to, ((const double *)column->values)[at])))
                    return -1 - (column - columns);
            } else if (column->kind == DATETIME) {
                if (!(to = datetime(to, ((const int64_t *)column->values)[at])))
                    return -1 - (column - columns);
            } else {
                int32_t start = column->ends[at], length = column->ends[at + 1] - start;
                if (column->kind == QUOTED)
                    *to++ = '"';
                to = copied(to, (const uint8_t *)column->values + start, length);
                if (column->kind == QUOTED)
                    *to++ = '"';
            }
        }
        to = copied(to, after, after_length);
        ends[row + 1] = (int32_t)(to - out);
    }
    return to - out;
}
