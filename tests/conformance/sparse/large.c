/* More than 2^24 elements, where a float no longer holds every index: each entry must arrive
 * exactly where it belongs, the last one too. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/sparse/sparse.h"

enum { ENTRIES = 4 };
static const size_t count = ((size_t)1 << 24) + 3;

struct large {
    struct sparse_session *session;
    const char *algorithm;
};

/* Odd ones that float32 cannot hold, and both ends of a region. */
static const size_t places[ENTRIES] = {1, ((size_t)1 << 23) + 1, ((size_t)1 << 24) + 1,
                                       ((size_t)1 << 24) + 2};

static void large_rank(int rank, int size, void *argument)
{
    const struct large *large = argument;
    trib_device *device = large->session->team.devices[rank];
    trib_stream stream = large->session->team.streams[rank];
    trib_sparse *state = NULL;
    trib_sparse_options options = TRIB_SPARSE_OPTIONS_INIT;
    float *host = calloc(count, sizeof *host);
    void *data = NULL;
    if (host == NULL)
        abort();
    for (int i = 0; i < ENTRIES; i++)
        host[places[i]] = (float)(i + 1) * (float)(rank + 1);
    options.algorithm = large->algorithm;
    options.flags = TRIB_SPARSE_USE_K;
    options.k = 8192; /* a block, a chunk and a region have room for all entries */
    CHECK_OK(trib_device_alloc(&data, device, count * sizeof *host));
    CHECK_OK(
        trib_sparse_create(&state, large->session->team.comms[rank], count, TRIB_F32, &options));
    CHECK_OK(trib_device_copy(device, data, host, count * sizeof *host, stream));
    CHECK_OK(trib_sparse_allreduce(state, data, data, stream));
    CHECK_OK(trib_device_copy(device, host, data, count * sizeof *host, stream));
    CHECK_OK(trib_stream_wait(device, stream));
    CHECK_OK(trib_sparse_status(state));
    size_t others = 0;
    const float ranks = (float)(size * (size + 1) / 2);
    for (int i = 0; i < ENTRIES; i++) {
        CHECK_MSG(host[places[i]] == (float)(i + 1) * ranks, "element %zu is %g, not %g", places[i],
                  host[places[i]], (float)(i + 1) * ranks);
        host[places[i]] = 0;
    }
    for (size_t i = 0; i < count; i++)
        others += host[i] != 0;
    CHECK_MSG(others == 0, "%zu other elements are not 0", others);
    CHECK_OK(trib_sparse_destroy(state));
    CHECK_OK(trib_device_free(device, data));
    free(host);
}

void sparse_large(struct sparse_session *session)
{
    for (int i = 0; sparse_algorithms[i] != NULL; i++) {
        struct large large = {.session = session, .algorithm = sparse_algorithms[i]};
        check_begin("%s, %d ranks: %s, %zu elements", session->team.backend, session->team.size,
                    large.algorithm, count);
        check_ranks(session->team.size, large_rank, &large);
        check_end();
        sparse_session_mend(session);
    }
}
