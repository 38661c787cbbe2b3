/* The service thread: one for all channels of the process. It sleeps in epoll until a socket or a
 * pidfd is ready or a deadline passes; there are no periodic wake-ups.
 *
 * One lock guards the items, the channels and the peers of the whole process. Whoever calls into
 * this file holds it, except where stated. It is held for system calls that do not block, and for
 * the MAC of one message (64 KiB: 0.3 ms); it is released while a callback of the owner runs. So no
 * thread waits long for it, and a callback may send. */
#ifndef TRI_PEERS_SERVICE_H
#define TRI_PEERS_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* Something that the service thread watches. The owner sets fd, ready and context, and removes the
 * item before it closes fd. */
struct tri_service_item {
    int fd; /* -1: only a deadline */
    void *context;
    /* Called on the service thread, with the lock held. `events` are epoll's; 0 if the deadline has
     * passed, which it does once. It may release the lock, and may remove and free any item. */
    void (*ready)(struct tri_service_item *item, uint32_t events);

    uint32_t events; /* the rest belongs to service.c */
    uint64_t deadline_ns;
    uint64_t number;
    struct tri_service_item *next;
};

/* Start the thread if this is the first reference; the last release ends it and waits for its end.
 * Without the lock; never on the service thread. */
trib_status tri_service_retain(void);
void tri_service_release(void);

void tri_service_lock(void);
void tri_service_unlock(void);
/* Wait for tri_service_wake; false if `deadline_ns` passed first. May return early. */
bool tri_service_wait(uint64_t deadline_ns);
void tri_service_wake(void);

/* A forked child closes the fd of every item that has been added. */
void tri_service_add(struct tri_service_item *item);
void tri_service_remove(struct tri_service_item *item); /* nothing if it was not added */
/* Watch for these events of epoll; 0: for none, not even for the end. Returns 0 or an errno. */
int tri_service_events(struct tri_service_item *item, uint32_t events);
/* 0: none. */
void tri_service_deadline(struct tri_service_item *item, uint64_t deadline_ns);

#endif
