#pragma once

/* The implementations; only registry.c knows them. */

#include "backend/backend.h"

struct backend *native_backend_open(const struct backend_options *options, struct error *err);
struct backend *direct_backend_open(const struct backend_options *options, struct error *err);
struct backend *none_backend_open(const struct backend_options *options, struct error *err);
