/* SPDX-License-Identifier: Apache-2.0 */
#include "web/tickets.h"

#include "auth/encoding.h"
#include "base/alloc.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

enum { SECRET_BYTES = 32 };

static const int64_t valid_us = 120 * 1000 * 1000;
static const char prefix[] = "sgd_";

struct ticket {
    char digest[SHA256_TEXT_SIZE];
    struct login login;
    int64_t expires_us; /* of the loop's clock */
};

struct tickets {
    struct loop *loop;    /* borrowed */
    struct map by_digest; /* struct ticket; owned */
};

struct tickets *tickets_new(struct loop *loop)
{
    struct tickets *tickets = xnew(struct tickets);

    tickets->loop = loop;
    return tickets;
}

void tickets_free(struct tickets *tickets)
{
    struct map_slot *slot;

    if (!tickets)
        return;
    map_for_each (slot, &tickets->by_digest)
        free(slot->value);
    map_fini(&tickets->by_digest);
    free(tickets);
}

static void digest_of(const char *text, char out[SHA256_TEXT_SIZE])
{
    uint8_t digest[SHA256_BYTES];

    sha256_of("", 0, text, strlen(text), digest);
    hex_encode(digest, sizeof(digest), out);
}

/* The map must not change while it is walked: one at a time. */
static bool drop_one_expired(struct tickets *tickets)
{
    int64_t now_us = loop_now_us(tickets->loop);
    struct map_slot *slot;

    map_for_each (slot, &tickets->by_digest) {
        struct ticket *ticket = slot->value;

        if (now_us < ticket->expires_us)
            continue;
        map_remove(&tickets->by_digest, ticket->digest);
        free(ticket);
        return true;
    }
    return false;
}

int tickets_issue(struct tickets *tickets, const struct login *login, char out[TICKET_TEXT_SIZE],
                  int64_t *out_expires_us, struct error *err)
{
    uint8_t secret[SECRET_BYTES];
    struct ticket *ticket;

    while (drop_one_expired(tickets))
        ;
    if (tickets->by_digest.count >= TICKETS_MAXIMUM)
        return error_named(err, ERR_LIMIT, "too_many_tokens",
                           "too many one-time tokens of the dashboard are not used yet");
    random_fill(secret, sizeof(secret));
    memcpy(out, prefix, sizeof(prefix));
    hex_encode(secret, sizeof(secret), out + strlen(prefix));
    explicit_bzero(secret, sizeof(secret));
    ticket = xnew(struct ticket);
    digest_of(out, ticket->digest);
    ticket->login = *login;
    ticket->expires_us = loop_now_us(tickets->loop) + valid_us;
    map_put(&tickets->by_digest, ticket->digest, ticket);
    *out_expires_us = clock_wall_us(loop_clock(tickets->loop)) + valid_us;
    return 0;
}

bool tickets_take(struct tickets *tickets, const char *text, struct login *out)
{
    char digest[SHA256_TEXT_SIZE];
    struct ticket *ticket;
    bool is_valid;

    digest_of(text, digest);
    ticket = map_remove(&tickets->by_digest, digest);
    if (!ticket)
        return false;
    is_valid = loop_now_us(tickets->loop) < ticket->expires_us;
    if (is_valid)
        *out = ticket->login;
    free(ticket);
    return is_valid;
}
