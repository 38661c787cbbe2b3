/* A rank of a communicator over the backend "processes". */
#include "tests/processes/member.h"

bool member_prepare(struct member *member, int rank, int size, int ordinal)
{
    *member = (struct member){.rank = rank, .size = size};
    return CHECK_OK(trib_device_get(&member->device, "processes", ordinal)) &&
           CHECK_OK(trib_stream_create(&member->stream, member->device));
}

bool member_join(struct member *member, int which, const trib_options *options)
{
    const trib_id id = processes_id(which);
    return CHECK_OK(trib_comm_create(&member->comm, &id, member->rank, member->size,
                                     trib_device_ordinal(member->device), options));
}

bool member_begin(struct member *member, int rank, int size, const trib_options *options)
{
    return member_prepare(member, rank, size, rank) && member_join(member, 0, options);
}

void member_end(struct member *member)
{
    CHECK_OK(trib_comm_destroy(member->comm));
    CHECK_OK(trib_stream_destroy(member->device, member->stream));
}

void member_call(const struct member *member, float *data)
{
    CHECK_OK(trib_allreduce(member->comm, data, data, 1, TRIB_F32, TRIB_SUM, member->stream));
}

void member_wait(const struct member *member)
{
    CHECK_OK(trib_stream_wait(member->device, member->stream));
    CHECK_OK(trib_comm_status(member->comm));
}

bool member_is_done(const struct member *member)
{
    int32_t done = 0;
    CHECK_OK(trib_stream_query(&done, member->device, member->stream));
    return done != 0;
}

bool member_ends(const struct member *member, int ms)
{
    const double end = check_now_ms() + ms;
    while (!member_is_done(member)) {
        if (check_now_ms() > end)
            return false;
        check_sleep_ms(1);
    }
    return true;
}

bool member_fails(const struct member *member, int ms)
{
    const double end = check_now_ms() + ms;
    while (trib_comm_status(member->comm) == TRIB_OK) {
        if (check_now_ms() > end)
            return false;
        check_sleep_ms(1);
    }
    return true;
}
