#pragma once

/* Removing what programs of a sandbox may have made: anything, however deep. */

/* Removes everything in a directory. Returns how many entries resisted. */
unsigned remove_content(int dir);
