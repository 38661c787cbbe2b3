/* What a case may not leave. */
#include "tests/nccl_fake/share/counts.h"

#include <dirent.h>
#include <stdint.h>

#include "csrc/base/clock.h"
#include "tests/nccl_fake/share/fixture.h"

/* The one by which they are counted is among them, every time. */
static int count_files(void)
{
    int n = 0;
    DIR *files = opendir("/proc/self/fd");
    if (files == NULL) {
        CHECK_MSG(false, "no list of descriptors");
        return 0;
    }
    while (readdir(files) != NULL) /* NOLINT(concurrency-mt-unsafe): this thread alone has it */
        n++;
    (void)closedir(files);
    return n;
}

struct counts counts_now(void)
{
    return (struct counts){fake_mappings(), fake_events(), fake_blocks(), count_files(),
                           fake_spoiled()};
}

void counts_warm_up(void)
{
    (void)count_files();
}

void counts_check(const struct counts *before)
{
    uint32_t graphs = 0;
    const uint32_t left = tri_backend_nccl.quiesce(tri_deadline_ns(SHARE_PLENTY_MS), &graphs);
    const struct counts now = counts_now();
    CHECK_MSG(left == 0 && graphs == 0, "%u jobs and %u graphs are left", left, graphs);
    CHECK_MSG(fake_communicators() == 0, "%d communicators are not freed", fake_communicators());
    CHECK_MSG(now.mappings == before->mappings, "%d mappings and what they need are left",
              now.mappings - before->mappings);
    CHECK_MSG(now.events == before->events, "%d events are left", now.events - before->events);
    CHECK_MSG(now.blocks == before->blocks, "%d blocks are left", now.blocks - before->blocks);
    CHECK_MSG(now.files == before->files, "%d descriptors are left", now.files - before->files);
    CHECK_MSG(now.spoiled == before->spoiled, "%d calls spoil a capture",
              now.spoiled - before->spoiled);
    CHECK_MSG(fake_freed_early() == 0, "%d communicators are freed early", fake_freed_early());
}
