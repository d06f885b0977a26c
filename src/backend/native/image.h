/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Images: an archive of layers with a manifest, as `docker save` (manifest.json) and OCI tools
 * (index.json) write it. The outer archive is a directory here already.
 */

#include "backend/native/extract.h"

/* Whether the directory holds an image rather than a root file system. */
bool image_is_here(int dir);

/* Applies the layers of the image, lowest first. */
int image_unpack(int dir, struct extract *extract, struct error *err);

/* Applies one layer, the `layer`th of `layers` from 1, which is an open tar archive. */
int image_unpack_layer(int fd, unsigned layer, unsigned layers, struct extract *extract,
                       struct error *err);
