/* SPDX-License-Identifier: Apache-2.0 */
#include "store/change_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A change: its table, whether it forgets, the length of the rest, then for each field that is set
 * its code and a number, or its code and text with the NUL. */
enum { HEADER_BYTES = 6, VARINT_BYTES = 10, FIELD_BYTES = 1 + VARINT_BYTES };
enum { TEXT_BIT = 0x80 };

/* Sandboxes of versions before 7 of the schema were known by three numbers. A log that such a
 * daemon left behind may be the only place that has them. */
enum old_handle_code { OLD_START_TIME = 7, OLD_SLOT = 8, OLD_PID = 10 };

struct old_handle {
    int64_t pid, start_time, slot;
    char text[64]; /* as migration 7 of sqlite/schema.c writes it */
};

struct reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
    struct old_handle old;
};

static size_t code_of(const struct record_type *type, size_t index)
{
    return type->fields[index].code ? type->fields[index].code : index;
}

static const struct record_field *field_with_code(const struct record_type *type, size_t code)
{
    for (size_t i = 0; i < type->field_count; i++)
        if (code_of(type, i) == code)
            return &type->fields[i];
    return NULL;
}

static void set_number(const struct record_field *field, char *record, int64_t number)
{
    void *place = record + field->offset;

    switch (field->kind) {
    case FIELD_I64:
    case FIELD_U64:
    case FIELD_BOOT:
        *(int64_t *)place = number;
        break;
    case FIELD_U32:
        *(uint32_t *)place = (uint32_t)number;
        break;
    case FIELD_INT:
        *(int *)place = (int)number;
        break;
    case FIELD_BOOL:
        *(bool *)place = number != 0;
        break;
    case FIELD_ID:
    case FIELD_TEXT:
    case FIELD_KEY:
        break;
    }
}

/* --- writing ------------------------------------------------------------------------------- */

static uint8_t *write_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* Small negative numbers stay short, too. */
static uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static int encode_text(size_t code, const char *text, struct buffer *out)
{
    size_t size = strlen(text) + 1;
    uint8_t *start, *at;

    if (size == 1)
        return 0;
    start = buffer_reserve(out, FIELD_BYTES + size);
    if (!start)
        return -1;
    at = start;
    *at++ = (uint8_t)(code | TEXT_BIT);
    at = write_varint(at, size);
    memcpy(at, text, size);
    buffer_advance(out, (size_t)(at - start) + size);
    return 0;
}

static int encode_number(size_t code, int64_t number, struct buffer *out)
{
    uint8_t *start;

    if (number == 0)
        return 0;
    start = buffer_reserve(out, FIELD_BYTES);
    if (!start)
        return -1;
    *start = (uint8_t)code;
    buffer_advance(out, (size_t)(write_varint(start + 1, zigzag(number)) - start));
    return 0;
}

int record_encode(const struct record_type *type, const void *record, struct buffer *out)
{
    for (size_t i = 0; i < type->field_count; i++) {
        const struct record_field *field = &type->fields[i];

        if ((record_is_text(field)
                 ? encode_text(code_of(type, i), record_text(field, record), out)
                 : encode_number(code_of(type, i), record_number(field, record), out)) < 0)
            return -1;
    }
    return 0;
}

int change_encode(const struct change *change, struct buffer *out)
{
    size_t start = out->length;
    uint8_t header[HEADER_BYTES] = { (uint8_t)change->table, change->forget };
    uint32_t length;

    if (buffer_append(out, header, sizeof(header)) < 0 ||
        record_encode(&record_types[change->table], change->record, out) < 0)
        return -1;
    length = (uint32_t)(out->length - start - HEADER_BYTES);
    memcpy(out->data + start + 2, &length, sizeof(length));
    return 0;
}

/* --- reading ------------------------------------------------------------------------------- */

static uint64_t read_varint(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    reader->failed = true;
    return 0;
}

static const char *read_text(struct reader *reader)
{
    uint64_t size = read_varint(reader);
    const char *text = (const char *)reader->at;

    if (reader->failed || size == 0 || size > (uint64_t)(reader->end - reader->at) ||
        memchr(text, '\0', size) != text + size - 1) {
        reader->failed = true;
        return "";
    }
    reader->at += size;
    return text;
}

static void set_text(const struct record_field *field, char *record, const char *text)
{
    char *place = record + field->offset;

    if (field->kind != FIELD_ID)
        memcpy(place, &text, sizeof(text));
    else if (strlen(text) < ID_SIZE)
        strcpy(place, text);
}

static void take_old_number(struct old_handle *old, size_t code, int64_t number)
{
    if (code == OLD_PID)
        old->pid = number;
    else if (code == OLD_START_TIME)
        old->start_time = number;
    else if (code == OLD_SLOT)
        old->slot = number;
}

static void put_old_handle(struct old_handle *old, struct sandbox_record *sandbox)
{
    if (old->pid <= 0 || sandbox->handle)
        return;
    snprintf(old->text, sizeof(old->text), "%" PRId64 ":%" PRId64 ":%" PRId64, old->pid,
             old->start_time, old->slot);
    sandbox->handle = old->text;
}

static void decode_field(struct reader *reader, const struct record_type *type, char *record)
{
    uint8_t tag = *reader->at++;
    size_t code = tag & ~TEXT_BIT;
    const struct record_field *field = field_with_code(type, code);

    if (tag & TEXT_BIT) {
        const char *text = read_text(reader);

        if (field && record_is_text(field))
            set_text(field, record, text);
    } else {
        uint64_t value = read_varint(reader);
        int64_t number = (int64_t)(value >> 1 ^ -(value & 1));

        if (field && !record_is_text(field))
            set_number(field, record, number);
        else if (!field)
            take_old_number(&reader->old, code, number);
    }
}

struct change *change_decode(const uint8_t *data, size_t length, size_t *out_used)
{
    alignas(max_align_t) char record[RECORD_MAXIMUM] = { 0 };
    struct reader reader;
    uint32_t rest;

    if (length < HEADER_BYTES || data[0] >= RECORD_TABLES || data[1] > 1)
        return NULL;
    memcpy(&rest, data + 2, sizeof(rest));
    if (rest > length - HEADER_BYTES)
        return NULL;
    reader = (struct reader){ .at = data + HEADER_BYTES, .end = data + HEADER_BYTES + rest };
    while (reader.at < reader.end && !reader.failed)
        decode_field(&reader, &record_types[data[0]], record);
    if (reader.failed)
        return NULL;
    if (data[0] == STORE_SANDBOXES)
        put_old_handle(&reader.old, (struct sandbox_record *)(void *)record);
    *out_used = HEADER_BYTES + rest;
    return change_new(data[0], data[1], record);
}
