#pragma once

/*
 * Destroying: kill, wait without blocking anybody, remove the cgroups, discard the files. It can be
 * started any number of times, from any state that a crash has left, and ends within a bounded
 * time: a process that cannot die makes the answer EBUSY, and a later request goes on from there.
 */

#include "launcher/launcher.h"

/* `request` asks for an answer; NULL undoes a creation that failed. */
void destroy_start(struct launcher *launcher, const char *id, const struct launch_header *request);

/* A process that we wait for has died. */
void destroy_on_death(struct launcher *launcher, struct destroy *destroy);

/* Tries again what was busy; returns how long the loop may wait, in ms, -1 for ever. */
int destroy_turn(struct launcher *launcher);

/* What an earlier launcher was making when it was killed, or had told to be gone and not removed
 * yet. The directory is ours alone, and so are the cgroups with the names that are in it. */
void destroys_resume(struct launcher *launcher);

/* Of those that have no mark any more, the slots are taken until they are gone. */
void destroys_mark(struct launcher *launcher);

/* The launcher ends: cgroups of what is still dying have their id again, where the next one finds
 * them. */
void destroys_close(struct launcher *launcher);

/* In a child, for which they are not. */
void destroys_close_fds(struct launcher *launcher);

/* Empties the trash by a child at low priority, unless one is at it already. */
void trash_start(struct launcher *launcher);
void trash_on_exit(struct launcher *launcher);

/* Removes everything in a directory, whatever it is and however deep. Returns how many entries
 * resisted. */
unsigned remove_content(int dir);
