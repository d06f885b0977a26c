/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The programs that run the code of contexts, one for each language, as text. */

extern const char driver_python[];
extern const char driver_bash[];
extern const char driver_node[];

/* A Python that waits for its script. */
extern const char driver_zygote[];
