/*
 * Fields out of plain JSON objects, a whole column at a time.
 *
 * Law: a payload is taken only if every parser of JSON agrees on it: one flat object of printable ASCII, without escapes,
 * nested values or exponents, whose wanted fields are, for tg_plain_json, strings or integers of at most 18 digits, and for
 * tg_plain_values also true, false, null and numbers of at most 15 digits with a point, and stand there once. Of all others
 * nothing is said: whoever calls asks another parser.
 *
 * It knows nothing of Python and is called through ctypes.
 */

#include <stdint.h>
#include <string.h>

enum { OTHER = 0, PLAIN = 1, MISSING = 2 };
enum { ABSENT = 0, TEXT = 1, INTEGER = 2, FRACTION = 3, WORD = 4 };

#define FIELDS 8
#define VALUES 32
#define NUMBER_BYTES 40
#define INTEGER_DIGITS 18
#define EXACT_DIGITS 15

typedef struct {
    const uint8_t *start; /* of the JSON text of its value; NULL where there is none */
    int32_t length;
    int32_t kind;
} found;

static const uint8_t *skip_space(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* The byte after the closing quote of the string that opens before *at*; NULL if it is not plain. */
static const uint8_t *skip_string(const uint8_t *at, const uint8_t *end) {
    for (; at < end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at < 0x20 || *at > 0x7e || *at == '\\')
            return NULL;
    }
    return NULL;
}

/* The byte after a number without exponent; NULL if it is none, or longer than anybody reads exactly. */
static const uint8_t *skip_number(const uint8_t *at, const uint8_t *end, int *kind) {
    const uint8_t *start = at, *digits;
    int negative = at < end && *at == '-';
    at += negative;
    digits = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    if (at == digits || (*digits == '0' && at - digits > 1))
        return NULL;
    *kind = at - digits <= INTEGER_DIGITS && !(negative && *digits == '0') ? INTEGER : ABSENT;
    if (at < end && *at == '.') {
        const uint8_t *fraction = ++at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == fraction)
            return NULL;
        *kind = at - digits <= EXACT_DIGITS + 1 ? FRACTION : ABSENT;
    }
    return at - start > NUMBER_BYTES || (at < end && (*at == 'e' || *at == 'E')) ? NULL : at;
}

static const uint8_t *skip_word(const uint8_t *at, const uint8_t *end) {
    if (end - at >= 4 && (!memcmp(at, "true", 4) || !memcmp(at, "null", 4)))
        return at + 4;
    return end - at >= 5 && !memcmp(at, "false", 5) ? at + 5 : NULL;
}

static int same_letters(const char *name, const uint8_t *other, int32_t length) {
    for (int32_t at = 0; at < length; at++) {
        uint8_t one = name[at], two = other[at];
        if ((one >= 'A' && one <= 'Z' ? one | 0x20 : one) != (two >= 'A' && two <= 'Z' ? two | 0x20 : two))
            return 0;
    }
    return 1;
}

/* What is wanted of payloads. */
typedef struct {
    const char *const *names;
    const int32_t *name_bytes;
    int fields;
    int kinds;       /* bits of the kinds of values that are taken */
    int any_letters; /* whether a member counts whose name differs in case where there is none of that very name */
} wish;

static int is_plain(const uint8_t *at, const uint8_t *end, const wish *wanted, found *taken) {
    uint32_t loose = 0; /* fields of which a member bears the name in other letters */
    at = skip_space(at, end);
    if (at == end || *at++ != '{')
        return 0;
    at = skip_space(at, end);
    if (at < end && *at == '}')
        return skip_space(at + 1, end) == end;
    for (;;) {
        if (at == end || *at++ != '"')
            return 0;
        const uint8_t *name = at;
        if (!(at = skip_string(at, end)))
            return 0;
        int32_t length = (int32_t)(at - 1 - name);
        int which = wanted->fields;
        for (int field = 0; field < wanted->fields; field++)
            if (wanted->name_bytes[field] == length) {
                if (!memcmp(wanted->names[field], name, length)) {
                    if (taken[field].start) /* the parsers that take the last one do not agree */
                        return 0;
                    which = field;
                } else if (wanted->any_letters && same_letters(wanted->names[field], name, length))
                    loose |= 1u << field;
            }
        at = skip_space(at, end);
        if (at == end || *at++ != ':')
            return 0;
        at = skip_space(at, end);
        if (at == end)
            return 0;
        const uint8_t *value = at;
        int kind = ABSENT;
        if (*at == '"') {
            at = skip_string(at + 1, end);
            kind = TEXT;
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            at = skip_number(at, end, &kind);
        } else {
            at = skip_word(at, end);
            kind = WORD;
        }
        if (!at || (which < wanted->fields && !(wanted->kinds >> kind & 1)))
            return 0;
        if (which < wanted->fields) {
            taken[which].start = value;
            taken[which].length = (int32_t)(at - value);
            taken[which].kind = kind;
        }
        at = skip_space(at, end);
        if (at == end)
            return 0;
        if (*at == '}')
            break;
        if (*at++ != ',')
            return 0;
        at = skip_space(at, end);
    }
    for (int field = 0; loose && field < wanted->fields; field++)
        if (loose >> field & 1 && !taken[field].start)
            return 0;
    return skip_space(at + 1, end) == end;
}

/* A binary column: its *ends* of 64 bits if *wide*, *valid* a bitmap or NULL where nothing is null; it begins at *first*. */
typedef struct {
    const uint8_t *bytes;
    const void *ends;
    int wide;
    const uint8_t *valid;
    int64_t first;
} column;

static uint8_t look(const column *payloads, int64_t row, const wish *wanted, found *taken) {
    int64_t at = payloads->first + row;
    if (payloads->valid && !(payloads->valid[at >> 3] >> (at & 7) & 1))
        return MISSING;
    int64_t start = payloads->wide ? ((const int64_t *)payloads->ends)[at] : ((const int32_t *)payloads->ends)[at];
    int64_t end = payloads->wide ? ((const int64_t *)payloads->ends)[at + 1] : ((const int32_t *)payloads->ends)[at + 1];
    return end > start && is_plain(payloads->bytes + start, payloads->bytes + end, wanted, taken) ? PLAIN : OTHER;
}

/*
 * Take *fields* fields out of *rows* payloads: a binary column (its *ends* of 64 bits if *wide*) that begins at *first*.
 *
 * For each field the JSON text of each row's value goes to *texts*, its end there to *text_ends* (rows + 1 of them), and
 * whether there is one to the bits of *there*; *status* tells of each row what it is. Return how many rows are OTHER.
 */
int64_t tg_plain_json(const uint8_t *bytes, const void *ends, int wide, const uint8_t *valid, int64_t first, int64_t rows,
                      const char *const *names, const int32_t *name_bytes, int fields, uint8_t *const *texts, int32_t *const *text_ends,
                      uint8_t *const *there, uint8_t *status) {
    const column payloads = {bytes, ends, wide, valid, first};
    const wish wanted = {names, name_bytes, fields, 1 << TEXT | 1 << INTEGER, 0};
    int64_t others = 0;
    int32_t length[FIELDS] = {0};
    for (int which = 0; which < fields; which++) {
        text_ends[which][0] = 0;
        memset(there[which], 0, (rows + 7) / 8);
    }
    for (int64_t row = 0; row < rows; row++) {
        found taken[FIELDS] = {{0}};
        status[row] = look(&payloads, row, &wanted, taken);
        others += status[row] == OTHER;
        for (int which = 0; which < fields; which++) {
            if (status[row] == PLAIN && taken[which].start) {
                memcpy(texts[which] + length[which], taken[which].start, taken[which].length);
                length[which] += taken[which].length;
                there[which][row >> 3] |= 1u << (row & 7);
            }
            text_ends[which][row + 1] = length[which];
        }
    }
    return others;
}

/* The number that the digits from *at* to *end* are, a point among them left out. */
static int64_t integer(const uint8_t *at, const uint8_t *end) {
    int64_t value = 0;
    for (; at < end; at++)
        if (*at != '.')
            value = value * 10 + (*at - '0');
    return value;
}

/* A number of at most 15 digits with a point: both parts of the quotient are exact, so it is rounded once, as it should be. */
static double fraction(const uint8_t *at, const uint8_t *end) {
    static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int negative = *at == '-';
    const uint8_t *point = memchr(at, '.', end - at);
    double value = (double)integer(at + negative, end) / power[end - point - 1];
    return negative && value ? -value : value;
}

/*
 * Take the values of *fields* fields out of *rows* payloads, a binary column as above.
 *
 * For each field *kind* tells of each row what its value is: 0 none or null, 1 a text, which goes to *texts* without quotes (its
 * end there to *text_ends*, rows + 1 of them), 2 an integer and 3 a float, whose 64 bits go to *bits*, 4 false, 5 true.
 * *status* tells of each row what it is. Return how many rows are OTHER.
 */
int64_t tg_plain_values(const uint8_t *bytes, const void *ends, int wide, const uint8_t *valid, int64_t first, int64_t rows,
                        const char *const *names, const int32_t *name_bytes, int fields, uint8_t *const *texts,
                        int32_t *const *text_ends, uint8_t *const *kind, int64_t *const *bits, uint8_t *status) {
    const column payloads = {bytes, ends, wide, valid, first};
    const wish wanted = {names, name_bytes, fields, 1 << TEXT | 1 << INTEGER | 1 << FRACTION | 1 << WORD, 1};
    int64_t others = 0;
    int32_t length[VALUES] = {0};
    for (int which = 0; which < fields; which++)
        text_ends[which][0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        found taken[VALUES] = {{0}};
        status[row] = look(&payloads, row, &wanted, taken);
        others += status[row] == OTHER;
        for (int which = 0; which < fields; which++) {
            const uint8_t *start = taken[which].start, *end = start + taken[which].length;
            kind[which][row] = 0;
            bits[which][row] = 0;
            if (status[row] == PLAIN && start) {
                if (taken[which].kind == TEXT) {
                    memcpy(texts[which] + length[which], start + 1, taken[which].length - 2);
                    length[which] += taken[which].length - 2;
                    kind[which][row] = 1;
                } else if (taken[which].kind == INTEGER) {
                    bits[which][row] = *start == '-' ? -integer(start + 1, end) : integer(start, end);
                    kind[which][row] = 2;
                } else if (taken[which].kind == FRACTION) {
                    double value = fraction(start, end);
                    memcpy(&bits[which][row], &value, sizeof value);
                    kind[which][row] = 3;
                } else if (*start != 'n') {
                    kind[which][row] = *start == 't' ? 5 : 4;
                }
            }
            text_ends[which][row + 1] = length[which];
        }
    }
    return others;
}
