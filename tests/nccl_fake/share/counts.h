/* What a case may not leave. */
#ifndef TRI_TESTS_NCCL_FAKE_SHARE_COUNTS_H
#define TRI_TESTS_NCCL_FAKE_SHARE_COUNTS_H

struct counts {
    int mappings, events, blocks, files;
    int spoiled; /* captures */
};

struct counts counts_now(void);
/* The system's own functions may keep a file from their first call on. */
void counts_warm_up(void);
/* Nothing is in the background any more, and the counts are those. */
void counts_check(const struct counts *before);

#endif
