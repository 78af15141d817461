/*
 * Fields out of JSON objects, a whole column of payloads in one walk over each of them.
 *
 * Law: a payload is read here only if it is one object in strict JSON and every parser would read the same values from the wanted members.
 * The status of any other payload is OTHER: the caller hands it to another parser. Two rules are ours. Of members with equal names the
 * first counts. The member with exactly the wanted name counts; if there is none and the node is not exact, the first member whose name
 * differs in case only.
 *
 * This file knows nothing of Python and is called through ctypes.
 */

#include "json_scan.h"
#include "json_texts.h"

/* The status of a payload: OTHER alone, MISSING (null) alone, or READ with the flags behind it that apply. */
enum { OTHER = 0, READ = 1, MISSING = 2, NESTED = 4, REPEATED = 8, UNASKED = 16 };
/* The kind of a value; NONE is an absent member or null. From NUMERAL on the value is a text in the payload. LOOSE is a flag: the text has
 * escapes or white space that its canonical form does not have. */
enum { NONE = 0, BIGINT = 1, FLOAT = 2, FALSE = 3, TRUE = 4, NUMERAL = 5, TEXT = 6, RECORD = 7, ARRAY = 8, LOOSE = 16 };
/* How a member was found. */
enum { BY_CASE = 1, BY_NAME = 2 };

#define NAME_BYTES 256
#define KELVIN "\xe2\x84\xaa" /* the only character beyond ASCII whose small letter is in ASCII: k */

/* A wanted member. The members wanted inside of it are the nodes [first, last); node 0 is the payload itself. */
typedef struct {
    const char *name;
    uint64_t tail; /* the last 8 bytes of the name in small letters: one comparison tells most names apart */
    uint64_t lengths; /* the lengths modulo 64 of the names inside, a bit each: most other names have another length */
    int32_t length;
    int32_t is_exact;
    int32_t is_foreign; /* whether the name has characters beyond ASCII */
    int32_t has_twin;   /* whether another node inside the same object may match the same member */
    int32_t is_raw;     /* whether its value is wanted as its text in the payload, of whatever kind it is */
    int32_t first, last;
    int32_t slot; /* the output column of its value, -1 for none */
    int32_t first_slot, last_slot; /* the output columns of the nodes inside */
} node;

typedef struct {
    scanner s;
    const node *nodes;
    const uint8_t *bytes;
    int64_t row;
    uint8_t *const *kinds;
    int64_t *const *values;
    uint8_t *found; /* for each node how its member was found in this payload, 0 if not */
    int32_t *next;  /* for each node the inner node that is likely to come next: payloads mostly keep the order of their members */
    int is_repeated, has_unasked;
} reader;

static const uint8_t *walk(reader *r, const uint8_t *at, const node *object);

static inline uint64_t tail_of(const uint8_t *name, int64_t length) {
    uint64_t tail = 0;
    if (length >= (int64_t)sizeof tail)
        memcpy(&tail, name + length - sizeof tail, sizeof tail);
    else
        memcpy(&tail, name, length);
    return tail | 0x2020202020202020;
}

static int is_same_by_case(const char *name, const uint8_t *other, int64_t length) {
    for (int64_t at = 0; at < length; at++) {
        uint8_t one = name[at], two = other[at];
        if ((one >= 'A' && one <= 'Z' ? one | 0x20 : one) != (two >= 'A' && two <= 'Z' ? two | 0x20 : two))
            return 0;
    }
    return 1;
}

static inline void put(reader *r, int32_t slot, int kind, int64_t value) {
    r->kinds[slot][r->row] = (uint8_t)kind;
    r->values[slot][r->row] = value;
}

static inline void put_text(reader *r, int32_t slot, int kind, const uint8_t *start, const uint8_t *end) {
    put(r, slot, kind, (int64_t)(start - r->bytes) << 32 | (end - start));
}

static const uint8_t *take_number(reader *r, const uint8_t *at, const node *wanted) {
    number found;
    const uint8_t *end = scan_number(&r->s, at, &found);
    /* Exact nodes may read substream keys, for which the text of a number counts: an integer may have any size. */
    if (!end || (wanted->is_exact && (found.is_negative_zero || found.stored == INTEGER_TEXT)))
        return NULL;
    if (found.stored == INTEGER_BITS || found.stored == FLOAT_BITS)
        put(r, wanted->slot, found.stored == INTEGER_BITS ? BIGINT : FLOAT, found.bits);
    else
        put_text(r, wanted->slot, NUMERAL, at, end);
    return end;
}

static const uint8_t *take_container(reader *r, const uint8_t *at, const node *wanted) {
    const uint8_t *start = at;
    int32_t loose = r->s.loose, odd = r->s.odd;
    int is_walked = *at == '{' && wanted->first < wanted->last;
    r->s.nested += is_walked;
    at = is_walked ? walk(r, at, wanted) : skip_value(&r->s, at);
    if (!at || wanted->slot < 0)
        return at;
    if (r->s.odd > odd)
        return NULL;
    put_text(r, wanted->slot, (*start == '{' ? RECORD : ARRAY) | (r->s.loose > loose ? LOOSE : 0), start, at);
    return at;
}

static const uint8_t *take_raw(reader *r, const uint8_t *at, const node *wanted) {
    const uint8_t *end = skip_value(&r->s, at);
    if (end && *at != 'n')
        put_text(r, wanted->slot, TEXT, at, end);
    return end;
}

/* Read a member's value, and inside it the members that are wanted. */
static inline const uint8_t *take(reader *r, const uint8_t *at, const node *wanted) {
    if (at == r->s.end)
        return NULL;
    if (wanted->is_raw)
        return take_raw(r, at, wanted);
    if (*at == '{' || *at == '[')
        return take_container(r, at, wanted);
    if (wanted->slot < 0)
        return scan_scalar(&r->s, at);
    if (*at == '"') {
        const uint8_t *start = at + 1;
        int traits = 0;
        if (!(at = scan_string(&r->s, start, &traits)))
            return NULL;
        put_text(r, wanted->slot, traits & ESCAPES ? TEXT | LOOSE : TEXT, start, at);
        return at + 1;
    }
    if (*at == '-' || is_digit(*at))
        return take_number(r, at, wanted);
    if ((at = scan_word(&r->s, at)) && at[-1] == 'e')
        put(r, wanted->slot, at[-2] == 'u' ? TRUE : FALSE, 0);
    return at;
}

/* Void what was read of a node: a member with a better matching name follows. */
static void forget(reader *r, const node *wanted) {
    for (int32_t slot = wanted->first_slot; slot < wanted->last_slot; slot++)
        r->kinds[slot][r->row] = NONE;
}

/* Return how a name matches a node's, 0 if it does not. */
static inline int name_matches(const node *wanted, const uint8_t *name, int64_t length, uint64_t tail) {
    if (wanted->tail != tail || wanted->length != length)
        return 0;
    if (!memcmp(wanted->name, name, length))
        return BY_NAME;
    return !wanted->is_exact && is_same_by_case(wanted->name, name, length) ? BY_CASE : 0;
}

/* Read the value at *at* if it counts for the node. Return its end, *at* if it does not count, NULL if it cannot be read. */
static inline const uint8_t *take_if_it_counts(reader *r, const uint8_t *at, const node *wanted, int match) {
    uint8_t *found = r->found + (wanted - r->nodes);
    r->is_repeated |= *found == match;
    if (*found >= match)
        return at;
    if (*found)
        forget(r, wanted);
    *found = (uint8_t)match;
    return take(r, at, wanted);
}

/* Read or skip the value of a member of *object*; *is_known* is set if its name can be that of one node only. */
static inline const uint8_t *take_member(reader *r, const uint8_t *at, const node *object, const uint8_t *name, int64_t length,
                                         int traits, int *is_known) {
    if (!(object->lengths >> (length & 63) & 1)) {
        r->has_unasked = 1;
        return skip_value(&r->s, at);
    }
    uint64_t tail = tail_of(name, length);
    int32_t *next = r->next + (object - r->nodes), expected = *next;
    int is_asked = 0;
    const uint8_t *end = at;
    for (int32_t which = object->first - 1; which < object->last; which++) {
        const node *wanted = r->nodes + (which < object->first ? expected : which);
        int match = name_matches(wanted, name, length, tail);
        if (!match || which == expected)
            continue;
        if (match == BY_CASE && traits & ESCAPES)
            return NULL;
        is_asked = 1;
        *is_known = !wanted->has_twin;
        *next = wanted + 1 < r->nodes + object->last ? (int32_t)(wanted + 1 - r->nodes) : object->first;
        const uint8_t *after = take_if_it_counts(r, at, wanted, match);
        if (!after)
            return NULL;
        end = after > at ? after : end;
        if (!wanted->has_twin)
            break;
    }
    r->has_unasked |= !is_asked;
    return end > at ? end : skip_value(&r->s, at);
}

/* Return whether a name that matched no node may match one by the Unicode rules of case, which this file does not know. */
static int may_count(const reader *r, const node *object, int foreign_names, int kelvins) {
    for (const node *wanted = r->nodes + object->first; wanted < r->nodes + object->last; wanted++)
        if (!wanted->is_exact && r->found[wanted - r->nodes] != BY_NAME && (kelvins || (wanted->is_foreign && foreign_names)))
            return 1;
    return 0;
}

/* Read an object some members of which are wanted. */
static const uint8_t *walk(reader *r, const uint8_t *at, const node *object) {
    uint8_t unescaped[NAME_BYTES];
    int foreign_names = 0, kelvins = 0;
    memset(r->found + object->first, 0, object->last - object->first);
    at = skip_space(&r->s, at + 1);
    if (at < r->s.end && *at == '}')
        return at + 1;
    for (;;) {
        const uint8_t *name;
        int64_t length;
        int traits = 0, is_known = 0;
        if (!(at = scan_name(&r->s, at, &name, &length, &traits)))
            return NULL;
        if (traits & ESCAPES) {
            if (length > NAME_BYTES)
                return NULL;
            length = unescape(unescaped, name, name + length) - unescaped;
            name = unescaped;
        }
        if (!(at = take_member(r, at, object, name, length, traits, &is_known)))
            return NULL;
        if (traits && !is_known) {
            foreign_names = 1;
            kelvins |= memmem(name, length, KELVIN, 3) != NULL;
        }
        at = skip_space(&r->s, at);
        if (at == r->s.end)
            return NULL;
        if (*at == '}')
            break;
        if (*at != ',')
            return NULL;
        at = skip_space(&r->s, at + 1);
    }
    return foreign_names && may_count(r, object, foreign_names, kelvins) ? NULL : at + 1;
}

/* A binary column of Arrow: *ends* are its offsets (64 bits if *wide*), *valid* its bitmap or NULL if nothing is null, *first* its offset. */
typedef struct {
    const uint8_t *bytes;
    const void *ends;
    const uint8_t *valid;
    int64_t first;
    int64_t rows;
    int32_t wide;
} column;

static int64_t end_of(const column *payloads, int64_t row) {
    int64_t at = payloads->first + row + 1;
    return payloads->wide ? ((const int64_t *)payloads->ends)[at] : ((const int32_t *)payloads->ends)[at];
}

static uint8_t read_payload(reader *r, const column *payloads) {
    int64_t place = payloads->first + r->row;
    if (payloads->valid && !(payloads->valid[place >> 3] >> (place & 7) & 1))
        return MISSING;
    const uint8_t *at = payloads->bytes + end_of(payloads, r->row - 1);
    r->s.end = payloads->bytes + end_of(payloads, r->row);
    r->s.loose = r->s.odd = r->is_repeated = r->has_unasked = 0;
    r->s.nested = -1;
    at = skip_space(&r->s, at);
    if (at == r->s.end || *at != '{' || !(at = take_container(r, at, r->nodes)) || skip_space(&r->s, at) != r->s.end)
        return OTHER;
    return (uint8_t)(READ | (r->s.nested > 0 ? NESTED : 0) | (r->is_repeated ? REPEATED : 0) | (r->has_unasked ? UNASKED : 0));
}

/*
 * Read the members that *nodes* name from all payloads. For each slot and row, *kinds* (zeroed by the caller) gets the kind of the value.
 * *values* gets the 64 bits of a number; for a text its start, counted from the start of the first payload, in the upper half and its
 * length in the lower. *found* and *next* are scratch room with an entry for each node. *status* gets the status of each payload. Return
 * how many payloads are OTHER.
 */
int64_t tg_json_fields(const column *payloads, const node *nodes, uint8_t *const *kinds, int64_t *const *values, uint8_t *found,
                       int32_t *next, uint8_t *status) {
    const uint8_t *start = payloads->bytes + end_of(payloads, -1), *limit = payloads->bytes + end_of(payloads, payloads->rows - 1);
    reader r = {{NULL, limit, 0, 0, 0}, nodes, start, 0, kinds, values, found, next, 0, 0};
    int64_t others = 0;
    for (; r.row < payloads->rows; r.row++) {
        status[r.row] = read_payload(&r, payloads);
        if (status[r.row] == OTHER) {
            others++;
            forget(&r, nodes);
        }
    }
    return others;
}

/* Return the byte after an array whose elements are strict JSON, and count them; *spans* (NULL: none) gets start and end of each. */
static const uint8_t *split_array(scanner *s, const uint8_t *at, const uint8_t *first, int64_t *count, int64_t *spans) {
    *count = 0;
    at = skip_space(s, at + 1);
    if (at < s->end && *at == ']')
        return at + 1;
    for (;;) {
        const uint8_t *start = at;
        if (!(at = skip_value(s, at)))
            return NULL;
        if (spans) {
            spans[2 * *count] = start - first;
            spans[2 * *count + 1] = at - first;
        }
        ++*count;
        at = skip_space(s, at);
        if (at == s->end || (*at != ',' && *at != ']'))
            return NULL;
        if (*at == ']')
            return at + 1;
        at = skip_space(s, at + 1);
    }
}

/*
 * Count the elements of each payload that is an array in strict JSON; -1 for any other, and for null. With *spans*, whose room the counts of
 * an earlier call tell, write start and end of each element, counted from the start of the first payload. Return the sum of the counts.
 */
int64_t tg_json_elements(const column *payloads, int64_t *counts, int64_t *spans) {
    const uint8_t *start = payloads->bytes + end_of(payloads, -1), *limit = payloads->bytes + end_of(payloads, payloads->rows - 1);
    int64_t total = 0;
    for (int64_t row = 0; row < payloads->rows; row++) {
        int64_t place = payloads->first + row, known = counts[row];
        scanner s = {payloads->bytes + end_of(payloads, row), limit, 0, 0, 0};
        counts[row] = -1;
        if ((spans && known < 0) || (payloads->valid && !(payloads->valid[place >> 3] >> (place & 7) & 1)))
            continue;
        const uint8_t *at = skip_space(&s, payloads->bytes + end_of(payloads, row - 1));
        int64_t count;
        if (at == s.end || *at != '[' || !(at = split_array(&s, at, start, &count, spans ? spans + 2 * total : NULL)) ||
            skip_space(&s, at) != s.end)
            continue;
        counts[row] = count;
        total += count;
    }
    return total;
}

/* Count the kinds of a slot's values, LOOSE left aside (the caller zeroes *counts*); return an upper bound of the bytes of its texts. */
int64_t tg_json_kinds(const uint8_t *kinds, const int64_t *values, int64_t rows, int64_t *counts) {
    int64_t bytes = 0;
    for (int64_t row = 0; row < rows; row++) {
        int kind = kinds[row] & ~LOOSE;
        counts[kind]++;
        bytes += kind >= NUMERAL ? values[row] & UINT32_MAX : 0;
    }
    return bytes;
}

/* Write the texts of a slot one behind the other, and their rows + 1 offsets; *start* is the start of the first payload. */
void tg_json_texts(const uint8_t *start, const uint8_t *kinds, const int64_t *values, int64_t rows, uint8_t *texts, int32_t *ends) {
    uint8_t *to = texts;
    ends[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        int kind = kinds[row] & ~LOOSE;
        if (kind >= NUMERAL) {
            const uint8_t *at = start + (values[row] >> 32), *end = at + (values[row] & UINT32_MAX);
            if (kinds[row] & LOOSE) {
                to = kind == TEXT ? unescape(to, at, end) : compact(to, at, end);
            } else {
                memcpy(to, at, end - at);
                to += end - at;
            }
        }
        ends[row + 1] = (int32_t)(to - texts);
    }
}
