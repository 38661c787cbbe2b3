/* Accepts connections, and keeps those whose other end has not proved itself yet. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/peers/accept.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/peers/socket.h"

enum {
    HANDSHAKE_MS = 2000, /* for one that has been accepted */
    SHORT_MS = 100,      /* until the next accept, where descriptors are short */
    SLOTS = 16,          /* for strangers, beside those for the ranks */
    REFUSALS_LOGGED = 8  /* by one rank: strangers do not fill the log */
};

bool tri_accept_logs(struct tri_accept *accept)
{
    return accept->refusals++ < REFUSALS_LOGGED;
}

/* ----------------------------------------------------------------------------- those that wait */

/* The one at `link`, if there is one. */
static void drop(struct tri_channel **link)
{
    struct tri_channel *channel = *link;
    if (channel == NULL)
        return;
    *link = channel->next;
    tri_channel_destroy(channel);
}

/* The oldest of those that have not said hello, if there is one: so whoever only connects, however
 * often, takes no slot from a rank that is about to prove itself. */
static void drop_one(struct tri_accept *accept)
{
    struct tri_channel **link = &accept->waiting;
    while (*link != NULL && (*link)->state != TRI_CHANNEL_HELLO)
        link = &(*link)->next;
    drop(*link != NULL ? link : &accept->waiting);
}

bool tri_accept_take(struct tri_accept *accept, const struct tri_channel *channel)
{
    struct tri_channel **link = &accept->waiting;
    while (*link != NULL && *link != channel)
        link = &(*link)->next;
    if (*link == NULL)
        return false;
    *link = channel->next;
    return true;
}

static int32_t count_waiting(const struct tri_accept *accept)
{
    int32_t n = 0;
    for (const struct tri_channel *one = accept->waiting; one != NULL; one = one->next)
        n++;
    return n;
}

static void add_waiting(struct tri_accept *accept, int fd, bool local)
{
    struct tri_channel *channel, **link = &accept->waiting;
    if (tri_channel_create(&channel, accept->family, fd, local, -1,
                           tri_deadline_ns(HANDSHAKE_MS)) != TRIB_OK) {
        tri_log(TRIB_LOG_WARN, "%s", tri_detail());
        return;
    }
    /* Not the new one, which has had no time to say anything. */
    if (count_waiting(accept) >= accept->family->size + SLOTS)
        drop_one(accept);
    while (*link != NULL)
        link = &(*link)->next;
    *link = channel;
}

/* ----------------------------------------------------------------------------------- listeners */

/* Without descriptors the listener would be ready again at once, for ever. It fails ten times a second
 * until there are some: only the first is logged. */
static void accept_later(struct tri_accept *accept, struct tri_service_item *listener, int error)
{
    if (accept->error != error)
        tri_log(TRIB_LOG_WARN, "rank %d cannot accept a connection: %s", accept->family->rank,
                tri_error_text(error).text);
    accept->error = error;
    (void)tri_service_events(listener, 0);
    tri_service_deadline(listener, tri_deadline_ns(SHORT_MS));
}

static void accept_one(struct tri_service_item *listener, uint32_t events)
{
    struct tri_accept *accept = listener->context;
    const bool local = listener == &accept->listeners[true];
    if (events == 0) {
        (void)tri_service_events(listener, EPOLLIN);
        return;
    }
    const int fd = tri_socket_accept(listener->fd);
    if (fd == -EAGAIN || fd == -ECONNABORTED)
        return;
    if (fd < 0) {
        accept_later(accept, listener, -fd);
    } else if (local && !tri_socket_same_user(fd)) {
        if (tri_accept_logs(accept))
            tri_log(TRIB_LOG_WARN, "rank %d refused a connection of another user",
                    accept->family->rank);
        (void)close(fd);
    } else {
        add_waiting(accept, fd, local);
    }
}

void tri_accept_begin(struct tri_accept *accept, const struct tri_channel_family *family)
{
    *accept = (struct tri_accept){
        .family = family, .listeners = {{.fd = -1}, {.fd = -1}}, .waiting = NULL};
}

void tri_accept_set(struct tri_accept *accept, bool local, int fd)
{
    struct tri_service_item *listener = &accept->listeners[local];
    if (fd < 0)
        return;
    *listener = (struct tri_service_item){.fd = fd, .context = accept, .ready = accept_one};
    tri_service_add(listener);
}

int tri_accept_start(struct tri_accept *accept, bool local)
{
    struct tri_service_item *listener = &accept->listeners[local];
    return listener->fd < 0 ? 0 : tri_service_events(listener, EPOLLIN);
}

void tri_accept_close(struct tri_accept *accept, bool local)
{
    struct tri_service_item *listener = &accept->listeners[local];
    tri_service_remove(listener);
    if (listener->fd >= 0)
        (void)close(listener->fd);
    listener->fd = -1;
}

void tri_accept_end(struct tri_accept *accept)
{
    tri_accept_close(accept, true);
    tri_accept_close(accept, false);
    while (accept->waiting != NULL)
        drop(&accept->waiting);
}
