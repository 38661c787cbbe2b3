#include "csrc/nccl/proxies.h"

#include <stddef.h>

#include "csrc/base/log.h"
#include "csrc/base/thread.h"
#include "csrc/nccl/device.h"

/* For how long NCCL 2.28 lets a proxy thread sleep (ncclProxyService polls with this timeout). */
#ifndef TRI_NCCL_POLL_MS /* shorter in a fake */
#  define TRI_NCCL_POLL_MS 500
#endif

/* The thread of an aborted rank may sleep once more when its connections have closed; that of one
 * that closes is woken by a message. Then each frees, which takes some 20 ms. */
enum { CLOSED_MS = TRI_NCCL_POLL_MS / 10, ABORTED_MS = TRI_NCCL_POLL_MS + 2 * CLOSED_MS };

/* NCCL has connected it, for the library: only then does its resources' stream exist. It frees others by itself. */
static bool is_connected(const struct tri_transport *rank)
{
    return rank->comm != NULL && rank->stream != NULL && rank->local->key.adopted == 0;
}

static int connected(const struct tri_nccl_local *local)
{
    int n = 0;
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next)
        n += is_connected(rank);
    return n;
}

static void *finalize_ranks(void *argument)
{
    const struct tri_nccl_local *local = argument;
    struct tri_nccl_device_guard guard;
    for (const struct tri_transport *rank = local->ranks; rank != NULL; rank = rank->next) {
        if (!is_connected(rank) || tri_nccl_push_device(&guard, rank->device) != TRIB_OK)
            continue;
        /* Refused where an abort came during a close: that rank has been finalized. */
        (void)ncclCommFinalize(rank->comm);
        tri_nccl_pop_device(&guard);
    }
    return NULL;
}

/* On a thread of its own: in this one's group, finalizing would be put off to the end of it. */
uint32_t tri_nccl_stop_proxies(struct tri_nccl_local *local)
{
    pthread_t thread;
    if (connected(local) < 2)
        return 0;
    const int error = tri_thread_start(&thread, finalize_ranks, local);
    if (error != 0) {
        tri_log(TRIB_LOG_WARN, "no thread for closing the connections of aborted ranks: %s",
                tri_error_text(error).text);
        return 0;
    }
    (void)pthread_join(thread, NULL);
    return ABORTED_MS;
}

uint32_t tri_nccl_stopped_proxies(const struct tri_nccl_local *local)
{
    return connected(local) < 2 ? 0 : CLOSED_MS;
}
