/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"

/* The image that a template names: `name`, or `standard` when that is empty or "host". NULL with the reason
 * when there is neither, or it is no reference of an image. The backend and the setting that would name a
 * standard image are for the message. */
const char *remote_image(const char *name, const char *standard, const char *backend,
                         const char *setting, struct error *err);
