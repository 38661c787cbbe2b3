/* One collective with one count, on every rank: what the header says about it, which the library is
 * not asked for. May it be accepted, and what should memory hold then? */
#ifndef TRI_TESTS_FUZZ_CALL_H
#define TRI_TESTS_FUZZ_CALL_H

#include "tests/conformance/reference.h"
#include "tests/fuzz/api/world.h"

enum kind {
    ALLREDUCE,
    BROADCAST,
    WITH,
    REDUCE,
    ALLGATHER,
    REDUCE_SCATTER,
    ALLTOALL,
    GATHER,
    SCATTER,
    KINDS
};
enum used { BY_ALL, BY_ROOT };
enum place { SAME, SEND_IN_RECV, RECV_IN_SEND };

/* Who uses which buffer, which of them has a block for each rank, what "in place" is. */
struct traits {
    enum used send, recv;
    bool send_blocks, recv_blocks, reduces, rooted;
    enum place place;
};
extern const struct traits call_traits[KINDS];

/* Where a rank's buffers are. */
enum { FOREIGN = 1 << 20 }; /* added: at this byte of the next rank's memory */
struct buffers {
    size_t send, recv; /* bytes of the arena; SIZE_MAX: NULL */
};

struct call {
    enum kind kind;
    size_t count[FUZZ_RANKS];
    trib_dtype dtype[FUZZ_RANKS];
    trib_op op[FUZZ_RANKS];
    int32_t root[FUZZ_RANKS];
    struct buffers at[FUZZ_RANKS];
    bool factor_in_recv; /* the factor lies where the result goes */
    double factor;       /* 0: none */
    const float *device_factor;
    uint64_t seed;
};

/* Does rank r use the buffer that is used by `used`? */
bool call_uses(const struct call *call, int r, enum used used);
/* Of one of its buffers; more than ARENA if that is all there is to say. */
size_t call_bytes(const struct world *world, const struct call *call, int r, bool blocks);

bool call_is_valid(const struct world *world, const struct call *call, int r);
/* Are the ranks' calls not the same? */
bool call_differs(const struct world *world, const struct call *call);
/* Do the streams compare the call? A composed one that differs may leave ranks waiting. */
bool call_is_compared(const struct call *call);

/* The ranks' inputs, and the elements of rank r's result. */
struct reference call_inputs(const struct world *world, const struct call *call);
void call_expect(const struct world *world, const struct call *call, int r, uint8_t *data);

#endif
