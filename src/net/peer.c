/* SPDX-License-Identifier: Apache-2.0 */
#include "net/peer.h"

#include "base/macros.h"
#include "base/scoped.h"
#include "wire/inside.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_BYTES = 4096, ANSWER_WAIT_US = 100 * 1000 };

static bool is_loopback_v6(const struct in6_addr *host)
{
    return IN6_IS_ADDR_LOOPBACK(host) || (IN6_IS_ADDR_V4MAPPED(host) && host->s6_addr[12] == 127);
}

bool address_is_loopback(const struct address *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;

    switch (address->storage.ss_family) {
    case AF_INET:
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        return is_loopback_v6(&v6->sin6_addr);
    default:
        return false;
    }
}

/* --- the user of a TCP connection ---------------------------------------------------------- */

struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 body;
};

static void put_host(const struct sockaddr_storage *storage, __be32 host[4], __be16 *out_port)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (storage->ss_family == AF_INET) {
        memcpy(&v4, storage, sizeof(v4));
        host[0] = v4.sin_addr.s_addr;
        *out_port = v4.sin_port;
    } else {
        memcpy(&v6, storage, sizeof(v6));
        memcpy(host, &v6.sin6_addr, sizeof(v6.sin6_addr));
        *out_port = v6.sin6_port;
    }
}

/* A question for the client's socket, whose own address is our peer's. */
static struct question question_make(const struct sockaddr_storage *client,
                                     const struct sockaddr_storage *server)
{
    struct question question = {
        .header = { .nlmsg_len = sizeof(question),
                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                    .nlmsg_flags = NLM_F_REQUEST },
        .body = { .sdiag_family = (uint8_t)client->ss_family,
                  .sdiag_protocol = IPPROTO_TCP,
                  .idiag_states = ~0U },
    };

    put_host(client, question.body.id.idiag_src, &question.body.id.idiag_sport);
    put_host(server, question.body.id.idiag_dst, &question.body.id.idiag_dport);
    question.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    question.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return question;
}

static uid_t ask_kernel(const struct question *question)
{
    _Alignas(struct nlmsghdr) char answer[ANSWER_BYTES];
    const struct nlmsghdr *header = (const struct nlmsghdr *)answer;
    const struct inet_diag_msg *found = NLMSG_DATA(header);
    struct timeval patience = { .tv_usec = ANSWER_WAIT_US };
    scoped(fd_close) int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    ssize_t got;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        send(fd, question, sizeof(*question), 0) < 0)
        return (uid_t)-1;
    got = recv(fd, answer, sizeof(answer), 0);
    if (got < (ssize_t)NLMSG_LENGTH(sizeof(*found)) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY)
        return (uid_t)-1;
    /* If the client is not on this host, the kernel answers with the listener. */
    if (found->idiag_state == TCP_LISTEN || found->id.idiag_dport != question->body.id.idiag_dport)
        return (uid_t)-1;
    return found->idiag_uid;
}

static uid_t user_of_tcp(int fd, const struct address *address)
{
    struct sockaddr_storage own = { 0 };
    socklen_t length = sizeof(own);
    struct question question;

    if (getsockname(fd, (struct sockaddr *)&own, &length) < 0 ||
        own.ss_family != address->storage.ss_family)
        return (uid_t)-1;
    question = question_make(&address->storage, &own);
    return ask_kernel(&question);
}

/* --- the process of a unix connection ------------------------------------------------------ */

/* Only a process with our own ids can be one: whose limits are not ours to see is another. A pid of
 * 0 is a process that our namespace cannot see, as no sandbox's is. */
static bool is_inside(const struct ucred *peer)
{
    struct rlimit own;
    struct rlimit theirs;

    if (peer->uid != geteuid() || peer->pid == 0 || getrlimit(INSIDE_RESOURCE, &own) < 0)
        return false;
    if (prlimit(peer->pid, INSIDE_RESOURCE, NULL, &theirs) < 0)
        return errno != EPERM;
    return theirs.rlim_max < own.rlim_max;
}

/* --- both ---------------------------------------------------------------------------------- */

void peer_read(struct http_peer *peer, int fd, const struct address *address)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);

    *peer = (struct http_peer){ .is_unix = address->is_unix, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    address_format(address, peer->address);
    if (!peer->is_unix) {
        peer->is_loopback = address_is_loopback(address);
        peer->uid = user_of_tcp(fd, address);
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return;
    peer->pid = credentials.pid;
    peer->uid = credentials.uid;
    peer->gid = credentials.gid;
    peer->is_inside = is_inside(&credentials);
}
