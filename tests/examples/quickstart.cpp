// Two ranks of this process sum their arrays: the C API from C++, its objects in smart pointers and
// its statuses as exceptions.
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <tributary.h>

static void check(trib_status status)
{
    if (status != TRIB_OK)
        throw std::runtime_error(trib_last_detail());
}

struct Destroy {
    void operator()(trib_group *group) const
    {
        (void)trib_group_destroy(group);
    }
};
using Group = std::unique_ptr<trib_group, Destroy>;

static Group make_group(int size, const trib_options &options)
{
    trib_group *group = nullptr;
    check(trib_group_create(&group, nullptr, size, &options));
    return Group(group);
}

static void sum()
{
    trib_options options = TRIB_OPTIONS_INIT;
    options.backend = "host"; // the same on "nccl", with memory and streams of GPUs
    std::array<std::array<float, 4>, 2> data{{{1, 2, 3, 4}, {10, 20, 30, 40}}};
    const void *send[] = {data[0].data(), data[1].data()};
    void *recv[] = {data[0].data(), data[1].data()}; // in place
    const Group group = make_group(2, options); // destroyed before the data, which it may still use

    check(trib_group_allreduce(group.get(), send, recv, 4, TRIB_F32, TRIB_SUM, nullptr));
    check(trib_group_wait(group.get(), nullptr, TRIB_NO_TIMEOUT)); // it is queued
    for (int rank = 0; rank < 2; rank++)
        std::printf("rank %d: %g %g %g %g\n", rank, data[rank][0], data[rank][1], data[rank][2],
                    data[rank][3]);
}

int main()
{
    try {
        sum();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
