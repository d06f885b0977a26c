/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Values of the fields of a message, for protobuf.c and protobuf_json.c. */

#include "wire/protobuf.h"

/* Fills in an error about the field; always -1. */
int protobuf_refuse(struct error *err, const char *field, const char *problem);

/* The problem text for a value that is not of this kind. */
const char *protobuf_problem(enum protobuf_kind kind);

/* The value of a field, by either form of its name; NULL when it is absent or null. Borrowed. */
json_t *protobuf_field_value(const json_t *message, const char *name);

/* Whether the value is a time in RFC 3339, from 1970 on. */
bool protobuf_is_time(const json_t *value);

/* A whole number, as a number or as decimal text. */
bool protobuf_read_number(const json_t *value, int64_t *out_number);
json_t *protobuf_number_text(int64_t number);

/* The number of a field of bool, numbers or an enum, in its range; and its canonical form. */
bool protobuf_field_number(const struct protobuf_field *field, const json_t *value,
                           int64_t *out_number);
json_t *protobuf_number_value(const struct protobuf_field *field, int64_t number);
