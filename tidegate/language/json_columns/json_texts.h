/*
 * The text of values whose tokens json_scan.h has checked. Law: compact JSON is written as DuckDB's writer does it: no spaces, escapes only
 * where JSON demands them, no zeros at the end of a fraction; other numbers as they are. What is written is never longer than what is read.
 */

#ifndef TG_JSON_TEXTS_H
#define TG_JSON_TEXTS_H

#include "json_scan.h"

static uint8_t *put_character(uint8_t *to, int32_t code) {
    if (code < 0x80) {
        *to++ = (uint8_t)code;
    } else if (code < 0x800) {
        *to++ = (uint8_t)(0xc0 | code >> 6);
    } else if (code < 0x10000) {
        *to++ = (uint8_t)(0xe0 | code >> 12);
        *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    } else {
        *to++ = (uint8_t)(0xf0 | code >> 18);
        *to++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        *to++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    }
    if (code >= 0x80)
        *to++ = (uint8_t)(0x80 | (code & 0x3f));
    return to;
}

/* The character of an escape behind its backslash; *at* moves behind it. */
static int32_t read_escape(const uint8_t **at) {
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    uint8_t letter = *(*at)++;
    const char *found = strchr(letters, letter);
    if (letter != 'u')
        return found ? meant[found - letters] : letter;
    int32_t code = hexadecimal(*at);
    *at += 4;
    if (code < 0xd800 || code > 0xdfff)
        return code;
    int32_t low = hexadecimal(*at + 2);
    *at += 6;
    return 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
}

/* Write the characters that the inside of a string means; return where they end. */
static uint8_t *unescape(uint8_t *to, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        const uint8_t *escape = memchr(at, '\\', end - at);
        const uint8_t *until = escape ? escape : end;
        memcpy(to, at, until - at);
        to += until - at;
        at = until;
        if (escape) {
            at++;
            to = put_character(to, read_escape(&at));
        }
    }
    return to;
}

static uint8_t *put_escaped(uint8_t *to, int32_t code) {
    static const char letters[] = "\"\\bfnrt", meant[] = "\"\\\b\f\n\r\t", digits[] = "0123456789ABCDEF";
    const char *found = code && code < 0x80 ? strchr(meant, code) : NULL;
    if (!found && code >= ' ')
        return put_character(to, code);
    *to++ = '\\';
    if (found) {
        *to++ = (uint8_t)letters[found - meant];
        return to;
    }
    memcpy(to, "u00", 3);
    to[3] = (uint8_t)digits[code >> 4];
    to[4] = (uint8_t)digits[code & 15];
    return to + 5;
}

static uint8_t *compact_string(uint8_t *to, const uint8_t **at) {
    const uint8_t *next = *at;
    do {
        if (*next == '\\') {
            next++;
            to = put_escaped(to, read_escape(&next));
        } else {
            *to++ = *next++;
        }
    } while (*next != '"');
    *to++ = '"';
    *at = next + 1;
    return to;
}

static uint8_t *compact_number(uint8_t *to, const uint8_t **at, const uint8_t *end) {
    const uint8_t *next = *at;
    int is_fraction = 0;
    for (; next < end && (is_digit(*next) || *next == '-' || *next == '.'); next++) {
        is_fraction |= *next == '.';
        *to++ = *next;
    }
    while (is_fraction && to[-1] == '0' && to[-2] != '.')
        to--;
    *at = next;
    return to;
}

/* Write an object or array as compact JSON; return where it ends. */
static uint8_t *compact(uint8_t *to, const uint8_t *at, const uint8_t *end) {
    while (at < end) {
        if (*at == '"') {
            *to++ = '"';
            if (*++at == '"') {
                *to++ = *at++;
                continue;
            }
            to = compact_string(to, &at);
        } else if (*at == '-' || is_digit(*at)) {
            to = compact_number(to, &at, end);
        } else {
            if (*at > ' ')
                *to++ = *at;
            at++;
        }
    }
    return to;
}

#endif
