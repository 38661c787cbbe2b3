/* Where rank 0 listens. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/job/listen.h"

#include <errno.h>

#include "csrc/base/clock.h"
#include "csrc/job/ask.h"
#include "csrc/job/place.h"
#include "csrc/peers/service.h"
#include "csrc/peers/socket.h"

enum {
    TAKEN_MS = 3000, /* for a port that is taken to become free, as when its last user ends */
    AGAIN_MS = 100   /* until the next look at it */
};

/* Returns a socket, a negative errno, or with *out_other another rank 0 has a port. */
static int try_ports(int32_t *out_port, bool *out_other, const struct tri_terms *terms)
{
    const struct tri_ports ports = tri_place_ports(terms->job);
    int fd = -1;
    for (*out_port = ports.first; *out_port <= ports.last; ++*out_port) {
        struct tri_peer_address own = {.port = (uint16_t)*out_port};
        fd = tri_socket_listen_tcp(&own, tri_place_is_loopback(terms->job->host));
        if (fd >= 0)
            return fd;
        *out_other = fd == -EADDRINUSE && tri_ask_other(terms, (uint16_t)*out_port);
        if (*out_other)
            return fd;
    }
    return fd;
}

trib_status tri_listen(int *out_fd, int32_t *out_port, const struct tri_terms *terms)
{
    const uint64_t taken_ns = tri_deadline_ns(TAKEN_MS);
    const uint64_t until_ns = taken_ns < terms->deadline_ns ? taken_ns : terms->deadline_ns;
    bool other = false;
    *out_fd = try_ports(out_port, &other, terms);
    while (*out_fd == -EADDRINUSE && !other && tri_now_ns() < until_ns) {
        (void)tri_service_wait(tri_deadline_ns(AGAIN_MS));
        *out_fd = try_ports(out_port, &other, terms);
    }
    if (*out_fd >= 0)
        return TRIB_OK;
    if (other)
        return TRIB_ERR_INVALID_USAGE;
    return tri_fail(TRIB_ERR_SYSTEM,
                    "trib_job_meet: rank 0 of %d cannot listen at %s: %s; set "
                    "TRIBUTARY_ADDRESS to host:port with a port that is free on its host",
                    terms->job->n_ranks, tri_ports_text(tri_place_ports(terms->job)).text,
                    tri_error_text(-*out_fd).text);
}
