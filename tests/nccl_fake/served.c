/* Who has served the calls, over the fake. */
#include "tests/nccl_fake/served.h"

#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fake_push.h"

bool served_since(struct served *before, long nccl, long pushes)
{
    const struct served now = {fake_nccl_calls(), fake_pushes()};
    const long got = now.nccl - before->nccl, pushed = now.pushes - before->pushes;
    *before = now;
    return nccl < 0 || CHECK_MSG(got == nccl && pushed == pushes,
                                 "NCCL got %ld calls, expected %ld; push served %ld, expected %ld",
                                 got, nccl, pushed, pushes);
}
