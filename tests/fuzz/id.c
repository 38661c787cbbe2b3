/* Fuzz target: 128 bytes that may be an id, to trib_comm_create.
 *
 * An id of the host backend holds a number that differs in every process, so most inputs begin with
 * a real id and say which bytes change; the others are all of the id. */
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { HASTY_MS = 2 };

/* The rank that another thread joins as. */
struct other {
    trib_id id;
    trib_comm *comm;
};

static trib_options hasty(void)
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.timeout_ms = HASTY_MS;
    return options;
}

static void join(int rank, void *argument)
{
    struct other *other = argument;
    const trib_options options = hasty();
    (void)rank;
    const trib_status status =
        STATUS(trib_comm_create(&other->comm, &other->id, 1, 2, 1, &options));
    FUZZ_CHECK((status == TRIB_OK) == (other->comm != NULL));
}

/* A fresh id with some bytes changed, or whatever the input says. True if it is still fresh. */
static bool make_id(trib_id *out, struct bytes *in)
{
    trib_id fresh;
    MUST(trib_id_create(&fresh, "host"));
    *out = fresh;
    if (bytes_rare(in, 4)) {
        memset(out, 0, sizeof *out);
        (void)bytes_copy(in, out->bytes, sizeof out->bytes);
    } else {
        for (uint32_t edits = bytes_below(in, 4); edits > 0; edits--) {
            const uint32_t at = bytes_below(in, sizeof out->bytes);
            out->bytes[at] ^= bytes_u8(in);
        }
    }
    return memcmp(out, &fresh, sizeof fresh) == 0;
}

static void destroy(trib_comm *comm)
{
    if (comm != NULL)
        FUZZ_CHECK(STATUS(trib_comm_destroy(comm)) == TRIB_OK);
}

/* An id of this process serves one communicator. */
static void is_used_up(const trib_id *id)
{
    trib_comm *comm = (trib_comm *)1;
    const trib_options options = hasty();
    FUZZ_CHECK(STATUS(trib_comm_create(&comm, id, 0, 1, 0, &options)) == TRIB_ERR_INVALID_ARGUMENT);
    FUZZ_CHECK(comm == NULL);
}

static void alone(struct bytes *in)
{
    trib_id id;
    trib_comm *comm = (trib_comm *)1;
    const bool fresh = make_id(&id, in);
    const int32_t rank = bytes_rare(in, 8) ? (int32_t)bytes_u32(in) : 0;
    const int32_t size = bytes_rare(in, 8) ? (int32_t)bytes_u32(in) : 1;
    const int32_t device = bytes_rare(in, 8) ? (int32_t)bytes_u32(in) : 0;
    const trib_options options = hasty();
    const trib_status status = STATUS(trib_comm_create(&comm, &id, rank, size, device, &options));
    FUZZ_CHECK((status == TRIB_OK) == (comm != NULL));
    FUZZ_CHECK(status == TRIB_OK || status == TRIB_ERR_TIMEOUT || fuzz_is_mistake(status) ||
               status == TRIB_ERR_NO_DEVICE);
    if (fresh && rank == 0 && size == 1 && device >= 0 && device < 64)
        FUZZ_CHECK(status == TRIB_OK);
    if (status == TRIB_OK) {
        FUZZ_CHECK(rank == 0 && size == 1);
        is_used_up(&id);
    }
    destroy(comm);
}

/* Two ranks, which may hold different ids. */
static void two(struct bytes *in)
{
    struct other other = {.comm = (trib_comm *)1};
    trib_comm *comm = (trib_comm *)1;
    trib_id id;
    const trib_options options = hasty();
    (void)make_id(&id, in);
    other.id = id;
    if (bytes_rare(in, 2))
        other.id.bytes[bytes_below(in, sizeof id.bytes)] ^= bytes_u8(in);
    const bool same = memcmp(&id, &other.id, sizeof id) == 0;
    fuzz_beside(join, &other);
    const trib_status status = STATUS(trib_comm_create(&comm, &id, 0, 2, 0, &options));
    fuzz_beside_end();
    FUZZ_CHECK((status == TRIB_OK) == (comm != NULL));
    if (comm != NULL || other.comm != NULL) /* both, and only of one id */
        FUZZ_CHECK(same && comm != NULL && other.comm != NULL);
    if (comm != NULL)
        is_used_up(&id);
    destroy(comm);
    destroy(other.comm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct bytes in = {data, bytes};
    if (bytes_rare(&in, 4))
        two(&in);
    else
        alone(&in);
    fuzz_quiet();
    return 0;
}
