/*
 * The tokens of JSON: each function checks one that begins at *at* and returns the byte after it, NULL if it is not JSON as RFC 8259
 * has it. What parsers read in different ways is NULL as well: more than LEVELS objects and arrays in each other, numbers beyond a float.
 */

#ifndef TG_JSON_SCAN_H
#define TG_JSON_SCAN_H

#include <float.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define LEVELS 64
#define BIGINT_DIGITS 18 /* every integer of so many digits fits 64 bits */
#define CANONICAL_DIGITS 15 /* no two decimals of so many digits are the same float: the text is the shortest already */
#define EXACT_INTEGER (1ULL << 53)
#define EXACT_POWER 22 /* powers of ten up to this are floats */
#define PART_DIGITS 100
#define EXPONENT_DIGITS 2

typedef struct {
    const uint8_t *end;   /* of the payload */
    const uint8_t *limit; /* of what may be looked at: payloads lie one after the other */
    int32_t loose;        /* how many tokens are not as compact JSON has them: spaces, escapes, zeros at the end of a fraction */
    int32_t odd;          /* how many numbers another writer may spell in another way, besides those zeros */
    int32_t nested;       /* how many objects and arrays there are */
} scanner;

enum { ESCAPES = 1, FOREIGN = 2 }; /* traits of a string: backslashes, characters beyond ASCII */

/* How a number is stored: as an integer, as a float, or, if neither is exact here, as its text. */
enum { INTEGER_BITS, FLOAT_BITS, INTEGER_TEXT, FLOAT_TEXT };

typedef struct {
    int stored;
    int is_negative_zero; /* a float, that is */
    int64_t bits;
} number;

static inline int is_digit(uint8_t octet) { return (uint8_t)(octet - '0') <= 9; }

static inline const uint8_t *skip_space(scanner *s, const uint8_t *at) {
    if (at < s->end && *at > ' ')
        return at;
    const uint8_t *start = at;
    while (at < s->end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    s->loose += at > start;
    return at;
}

/* The first byte from *at* on that ends a string or needs a look; at most *limit*. */
static inline const uint8_t *skip_plain(const uint8_t *at, const uint8_t *limit) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    for (; limit - at >= 16; at += 16) {
        __m128i piece = _mm_loadu_si128((const __m128i *)at);
        /* Compared with their signs, bytes beyond ASCII are less than a space. */
        __m128i special = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(piece, quote), _mm_cmpeq_epi8(piece, backslash)),
                                       _mm_cmplt_epi8(piece, space));
        int mask = _mm_movemask_epi8(special);
        if (mask)
            return at + __builtin_ctz(mask);
    }
#endif
    while (at < limit && *at >= ' ' && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return at;
}

static const uint8_t *scan_character(const uint8_t *at, const uint8_t *end) {
    int size = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    if (*at < 0xc2 || *at > 0xf4 || end - at < size)
        return NULL;
    /* Neither surrogates, nor more bytes than needed, nor beyond the last character. */
    uint8_t least = *at == 0xe0 ? 0xa0 : *at == 0xf0 ? 0x90 : 0x80, most = *at == 0xed ? 0x9f : *at == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < least || at[1] > most)
        return NULL;
    for (int next = 2; next < size; next++)
        if ((at[next] & 0xc0) != 0x80)
            return NULL;
    return at + size;
}

/* The value of four hexadecimal digits; -1 if they are none. */
static int32_t hexadecimal(const uint8_t *at) {
    int32_t value = 0;
    for (int digit = 0; digit < 4; digit++) {
        uint8_t octet = at[digit], letter = octet | 0x20;
        if (!is_digit(octet) && !(letter >= 'a' && letter <= 'f'))
            return -1;
        value = value << 4 | (is_digit(octet) ? octet - '0' : letter - 'a' + 10);
    }
    return value;
}

/* An escape; *at* is behind its backslash. */
static const uint8_t *scan_escape(const uint8_t *at, const uint8_t *end) {
    if (at == end || !*at || !strchr("\"\\/bfnrtu", *at))
        return NULL;
    if (*at != 'u')
        return at + 1;
    int32_t unit = end - at > 4 ? hexadecimal(at + 1) : -1;
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return NULL;
    at += 5;
    if (unit < 0xd800 || unit > 0xdbff)
        return at;
    int32_t low = end - at > 5 && at[0] == '\\' && at[1] == 'u' ? hexadecimal(at + 2) : -1;
    return low >= 0xdc00 && low <= 0xdfff ? at + 6 : NULL;
}

/* A string; *at* is behind its opening quote, and the closing one is returned. */
static inline const uint8_t *scan_string(scanner *s, const uint8_t *at, int *traits) {
    for (;;) {
        at = skip_plain(at, s->limit);
        if (at >= s->end)
            return NULL;
        if (*at == '"')
            return at;
        if (*at < ' ')
            return NULL;
        if (*at == '\\') {
            s->loose += !(*traits & ESCAPES);
            *traits |= ESCAPES;
            at = scan_escape(at + 1, s->end);
        } else {
            *traits |= FOREIGN;
            at = scan_character(at, s->end);
        }
        if (!at)
            return NULL;
    }
}

static inline int64_t float_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Store the decimal *digits* times ten to the *power*: if both are floats, one operation rounds it as it should be. */
static inline void store_decimal(number *found, uint64_t digits, int is_exact, int64_t power, int negative) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    found->is_negative_zero = negative && !digits;
    found->stored = FLOAT_TEXT;
    if (FLT_EVAL_METHOD || !is_exact || digits > EXACT_INTEGER || power > EXACT_POWER || power < -EXACT_POWER)
        return;
    double size = power < 0 ? (double)digits / powers[-power] : (double)digits * powers[power];
    found->stored = FLOAT_BITS;
    found->bits = float_bits(negative && digits ? -size : size);
}

/* The rest of a number behind its *whole* digits: a fraction, an exponent, or both. */
static const uint8_t *scan_decimal(scanner *s, const uint8_t *at, number *found, uint64_t digits, int64_t whole, int negative) {
    const uint8_t *end = s->end;
    int leads = whole == 1 && !digits; /* whether there were but zeros so far */
    int64_t zeros = leads, places = 0, power = 0;
    if (*at == '.') {
        const uint8_t *fraction = ++at;
        for (; at < end && is_digit(*at); at++) {
            digits = digits * 10 + (*at - '0');
            zeros += leads = leads && *at == '0';
        }
        places = at - fraction;
        if (!places || places > PART_DIGITS)
            return NULL;
        s->loose += at[-1] == '0' && places > 1;
    }
    int64_t significant = whole + places - zeros;
    /* Zero has a sign here, and small numbers are written with an exponent. */
    s->odd += significant > CANONICAL_DIGITS || zeros > 4 || (negative && !significant);
    if (at < end && (*at | 0x20) == 'e') {
        s->odd++;
        at++;
        int is_small = at < end && *at == '-';
        at += at < end && (*at == '-' || *at == '+');
        const uint8_t *exponent = at;
        for (; at < end && is_digit(*at); at++)
            power = at - exponent < EXPONENT_DIGITS ? power * 10 + (*at - '0') : power;
        if (at == exponent || at - exponent > EXPONENT_DIGITS)
            return NULL;
        power = is_small ? -power : power;
    }
    store_decimal(found, digits, significant <= BIGINT_DIGITS + 1, power - places, negative);
    return at;
}

static inline const uint8_t *scan_number(scanner *s, const uint8_t *at, number *found) {
    const uint8_t *end = s->end;
    int negative = *at == '-';
    at += negative;
    const uint8_t *first = at;
    uint64_t digits = 0;
    for (; at < end && is_digit(*at); at++)
        digits = digits * 10 + (*at - '0');
    int64_t whole = at - first;
    if (!whole || whole > PART_DIGITS || (*first == '0' && whole > 1))
        return NULL;
    if (at < end && (*at == '.' || (*at | 0x20) == 'e'))
        return scan_decimal(s, at, found, digits, whole, negative);
    s->odd += negative && !digits;
    found->is_negative_zero = 0;
    /* One digit more cannot overflow 64 bits without a sign. */
    int fits = whole <= BIGINT_DIGITS || (whole == BIGINT_DIGITS + 1 && digits <= (uint64_t)INT64_MAX + negative);
    found->stored = fits ? INTEGER_BITS : INTEGER_TEXT;
    found->bits = (int64_t)(negative ? -digits : digits);
    return at;
}

static const uint8_t *scan_word(const scanner *s, const uint8_t *at) {
    if (s->end - at >= 4 && (!memcmp(at, "true", 4) || !memcmp(at, "null", 4)))
        return at + 4;
    return s->end - at >= 5 && !memcmp(at, "false", 5) ? at + 5 : NULL;
}

/* The string of a name, its colon and the spaces behind it. */
static inline const uint8_t *scan_name(scanner *s, const uint8_t *at, const uint8_t **name, int64_t *length, int *traits) {
    if (at == s->end || *at != '"')
        return NULL;
    *name = ++at;
    if (!(at = scan_string(s, at, traits)))
        return NULL;
    *length = at - *name;
    at = skip_space(s, at + 1);
    return at == s->end || *at != ':' ? NULL : skip_space(s, at + 1);
}

static inline const uint8_t *scan_scalar(scanner *s, const uint8_t *at) {
    int traits = 0;
    number found;
    if (*at == '"')
        return (at = scan_string(s, at + 1, &traits)) ? at + 1 : NULL;
    return *at == '-' || is_digit(*at) ? scan_number(s, at, &found) : scan_word(s, at);
}

/* Any value, down to its last level. */
static const uint8_t *skip_value(scanner *s, const uint8_t *at) {
    uint64_t objects = 0; /* a bit a level, the innermost lowest: whether it is an object */
    int levels = 0, traits = 0;
    const uint8_t *name;
    int64_t length;
    for (;;) {
        if (at == s->end)
            return NULL;
        if (*at == '{' || *at == '[') {
            int is_object = *at == '{';
            s->nested++;
            at = skip_space(s, at + 1);
            if (at == s->end)
                return NULL;
            if (*at != (is_object ? '}' : ']')) {
                if (levels++ == LEVELS)
                    return NULL;
                objects = objects << 1 | is_object;
                if (is_object && !(at = scan_name(s, at, &name, &length, &traits)))
                    return NULL;
                continue;
            }
            at++;
        } else if (!(at = scan_scalar(s, at))) {
            return NULL;
        }
        for (;; at++) { /* the value is over, and so may be what it is in */
            if (!levels)
                return at;
            at = skip_space(s, at);
            if (at == s->end)
                return NULL;
            if (*at != (objects & 1 ? '}' : ']'))
                break;
            objects >>= 1;
            levels--;
        }
        if (*at != ',')
            return NULL;
        at = skip_space(s, at + 1);
        if (objects & 1 && !(at = scan_name(s, at, &name, &length, &traits)))
            return NULL;
    }
}

#endif
