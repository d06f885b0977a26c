/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Removing files of sandboxes: of any type and depth. */

/* Removes everything in a directory. Returns how many entries resisted. */
unsigned remove_content(int dir);
