/*
 * Which Avro payloads are one value of their schema, and how much that value weighs, a whole column at a time.
 *
 * Law: the weights are those of avro_layout.py, which says what a layout and a weight are. Nothing is read beyond a payload,
 * and a payload that weighs too much is given up at once.
 *
 * It knows nothing of Python and is called through ctypes.
 */

#include <stdint.h>

enum { EMPTY, BOOLEAN, INT, LONG, FIXED, BYTES, ENUM, UNION, RECORD, ARRAY, MAP };

#define VARINT_BYTES 10

typedef struct {
    const uint8_t *at, *end;
    int64_t weight, weight_max;
} reader;

/* Read a number of 64 bits; return whether there is one. */
static int read_long(reader *in, int64_t *number) {
    uint64_t bits = 0;
    for (int place = 0; place < VARINT_BYTES && in->at < in->end; place++) {
        uint8_t octet = *in->at++;
        if (place == VARINT_BYTES - 1 && octet > 1)
            return 0;
        bits |= (uint64_t)(octet & 0x7f) << (7 * place);
        if (octet < 0x80) {
            *number = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return 1;
        }
    }
    return 0;
}

static int skip(reader *in, int64_t count) {
    if (count < 0 || count > in->end - in->at)
        return 0;
    in->at += count;
    return 1;
}

static int skip_text(reader *in) {
    int64_t length;
    return read_long(in, &length) && skip(in, length);
}

static int is_value(const int32_t *layout, int32_t node, reader *in);

/* The blocks of an array, or of a map if *keyed*. */
static int skip_blocks(const int32_t *layout, int32_t items, int keyed, reader *in) {
    for (;;) {
        int64_t count, size = -1;
        if (!read_long(in, &count))
            return 0;
        if (count == 0)
            return 1;
        if (count < 0 && (count == INT64_MIN || !read_long(in, &size) || size < 0 || size > in->end - in->at))
            return 0;
        const uint8_t *end = size < 0 ? 0 : in->at + size;
        for (count = count < 0 ? -count : count; count; count--)
            if ((keyed && !skip_text(in)) || !is_value(layout, items, in))
                return 0;
        if (end && in->at != end)
            return 0;
    }
}

/* Read a value of the type at *node*; return whether there is one that does not weigh too much. */
static int is_value(const int32_t *layout, int32_t node, reader *in) {
    const int32_t *type = layout + node;
    int64_t number;
    if (*type != UNION && ++in->weight > in->weight_max)
        return 0;
    switch (*type) {
    case EMPTY:
        return 1;
    case BOOLEAN:
        return in->at < in->end && *in->at++ <= 1;
    case INT:
        return read_long(in, &number) && number >= INT32_MIN && number <= INT32_MAX;
    case LONG:
        return read_long(in, &number);
    case FIXED:
        return skip(in, type[1]);
    case BYTES:
        return skip_text(in);
    case ENUM:
        return read_long(in, &number) && number >= 0 && number < type[1];
    case UNION:
        return read_long(in, &number) && number >= 0 && number < type[1] && is_value(layout, type[2 + number], in);
    case RECORD:
        in->weight += type[2];
        for (int32_t field = 0; field < type[1]; field++)
            if (!is_value(layout, type[3 + field], in))
                return 0;
        return in->weight <= in->weight_max;
    default:
        return skip_blocks(layout, type[1], *type == MAP, in);
    }
}

static int64_t least(int64_t one, int64_t two) { return one < two ? one : two; }

/*
 * Weigh *rows* payloads, each without its first *skipped* bytes: a binary column (its *ends* of 64 bits if *wide*) that begins
 * at *first*; *valid* is a bitmap or NULL where nothing is null. *limits* are the weight that is always allowed, that of each
 * byte, and that of a payload. The weight is -1 where there is no payload, or it is not one value.
 */
void tg_avro_weights(const int32_t *layout, const uint8_t *bytes, const void *ends, int wide, const uint8_t *valid, int64_t first,
                     int64_t rows, int64_t skipped, const int64_t *limits, int64_t *weights) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = first + row;
        weights[row] = -1;
        if (valid && !(valid[at >> 3] >> (at & 7) & 1))
            continue;
        int64_t start = wide ? ((const int64_t *)ends)[at] : ((const int32_t *)ends)[at];
        int64_t end = wide ? ((const int64_t *)ends)[at + 1] : ((const int32_t *)ends)[at + 1];
        reader in = {bytes + start, bytes + end, 0, least(limits[2], limits[0] + limits[1] * (end - start))};
        if (skip(&in, skipped) && is_value(layout, 0, &in) && in.at == in.end)
            weights[row] = in.weight;
    }
}
