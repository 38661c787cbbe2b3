/* Cases in which a step towards symmetric memory fails on one rank, or kills its process. */
#include "tests/processes/fault.h"

#include "tests/processes/member.h"

enum { RANKS = 3, PATIENT_MS = 20000 };

static double begun; /* the call of this process */

void fault_set(const struct fault *fault, int rank)
{
    if (rank == FAULT_RANK)
        symmetric_set_fault(fault->step, fault->kills);
    begun = check_now_ms();
}

void fault_check(const struct fault *fault, int rank, trib_status status)
{
    const double took = check_now_ms() - begun;
    CHECK_MSG(took < PATIENT_MS, "%.0f ms", took);
    CHECK_STATUS(status, fault->kills ? TRIB_ERR_CLOSED : TRIB_ERR_OUT_OF_MEMORY);
    if (!fault->kills)
        CHECK_DETAIL(rank == FAULT_RANK ? "on demand" : "another rank could not: rank 1");
}

static void try(const char *what, struct fault fault, void (*body)(int index, int n, void *fault))
{
    check_begin("step %d of %s %s on rank %d", (int)fault.step, what,
                fault.kills ? "kills" : "fails", FAULT_RANK);
    processes_check_killed(fault.kills ? FAULT_RANK : -1, RANKS, MEMBER_DEADLINE_MS, body, &fault);
    check_end();
}

void fault_cases(const char *what, enum symmetric_step last,
                 void (*body)(int index, int n, void *fault), const void *argument)
{
    for (int step = SYMMETRIC_ALLOC; step <= (int)last; step++)
        for (int kills = 0; kills < 2; kills++)
            try(what, (struct fault){(enum symmetric_step)step, kills != 0, argument}, body);
}
