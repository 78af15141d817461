/*
 * Fields out of plain JSON objects, a whole column at a time.
 *
 * Law: a payload is taken only if every parser of JSON agrees on it: one flat object of printable ASCII, without escapes,
 * nested values or exponents, whose wanted fields are strings or integers of at most 18 digits. Of all others nothing is said:
 * whoever calls asks another parser. Of members with equal names the first counts.
 *
 * It knows nothing of Python and is called through ctypes.
 */

#include <stdint.h>
#include <string.h>

enum { OTHER = 0, PLAIN = 1, MISSING = 2 };

#define FIELDS 8
#define NUMBER_BYTES 40
#define INTEGER_DIGITS 18

typedef struct {
    const uint8_t *start; /* of the JSON text of its value; NULL where there is none */
    int32_t length;
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
static const uint8_t *skip_number(const uint8_t *at, const uint8_t *end, int *is_short_integer) {
    const uint8_t *start = at, *digits;
    int negative = at < end && *at == '-';
    at += negative;
    digits = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    if (at == digits || (*digits == '0' && at - digits > 1))
        return NULL;
    *is_short_integer = at - digits <= INTEGER_DIGITS && !(negative && *digits == '0');
    if (at < end && *at == '.') {
        const uint8_t *fraction = ++at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == fraction)
            return NULL;
        *is_short_integer = 0;
    }
    return at - start > NUMBER_BYTES || (at < end && (*at == 'e' || *at == 'E')) ? NULL : at;
}

static const uint8_t *skip_word(const uint8_t *at, const uint8_t *end) {
    if (end - at >= 4 && (!memcmp(at, "true", 4) || !memcmp(at, "null", 4)))
        return at + 4;
    return end - at >= 5 && !memcmp(at, "false", 5) ? at + 5 : NULL;
}

static int is_plain(const uint8_t *at, const uint8_t *end, const char *const *names, const int32_t *name_bytes, int fields, found *taken) {
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
        int which = 0;
        while (which < fields && (taken[which].start || name_bytes[which] != length || memcmp(names[which], name, length)))
            which++;
        at = skip_space(at, end);
        if (at == end || *at++ != ':')
            return 0;
        at = skip_space(at, end);
        if (at == end)
            return 0;
        const uint8_t *value = at;
        int usable = 0;
        if (*at == '"') {
            at = skip_string(at + 1, end);
            usable = 1;
        } else if (*at == '-' || (*at >= '0' && *at <= '9')) {
            at = skip_number(at, end, &usable);
        } else {
            at = skip_word(at, end);
        }
        if (!at || (which < fields && !usable))
            return 0;
        if (which < fields) {
            taken[which].start = value;
            taken[which].length = (int32_t)(at - value);
        }
        at = skip_space(at, end);
        if (at == end)
            return 0;
        if (*at == '}')
            return skip_space(at + 1, end) == end;
        if (*at++ != ',')
            return 0;
        at = skip_space(at, end);
    }
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
    int64_t others = 0;
    int32_t length[FIELDS] = {0};
    for (int which = 0; which < fields; which++) {
        text_ends[which][0] = 0;
        memset(there[which], 0, (rows + 7) / 8);
    }
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = first + row;
        found taken[FIELDS] = {{0}};
        if (valid && !(valid[at >> 3] >> (at & 7) & 1)) {
            status[row] = MISSING;
        } else {
            int64_t start = wide ? ((const int64_t *)ends)[at] : ((const int32_t *)ends)[at];
            int64_t end = wide ? ((const int64_t *)ends)[at + 1] : ((const int32_t *)ends)[at + 1];
            status[row] = end > start && is_plain(bytes + start, bytes + end, names, name_bytes, fields, taken) ? PLAIN : OTHER;
        }
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
