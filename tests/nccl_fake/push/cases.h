/* The cases, a function for each file. */
#ifndef TRI_TESTS_NCCL_FAKE_PUSH_CASES_H
#define TRI_TESTS_NCCL_FAKE_PUSH_CASES_H

void push_limits(void);
void push_calls(void);
void push_kinds(void);
void push_streams(void);
void push_graphs(void);
void push_absent(void);
void push_ends(void);
void push_closes(void);
void push_children(void);
void pull_calls(void);
void pull_lists(void);
void pull_memory(void);
void push_variants(void);
void push_buffers(void);
void push_symmetric(void);
void push_windows(void);
void push_near(void);
void push_hosts(void);
void pull_streams(void);
void pull_absent(void);
void pull_ends(void);
void push_symmetric_kept(void);
void push_kept(void);
void pull_kept(void);
void push_graphs_kept(void);

#endif
