/* The table of backends of a program that has but one, of its own, in place of csrc/backends.c, which
 * the linker then leaves out. For one file of the program, which fills it before the first call. */
#ifndef TRI_TESTS_OWN_BACKEND_H
#define TRI_TESTS_OWN_BACKEND_H

#include <string.h>

#include "csrc/backend.h"

static struct tri_backend backend;

const struct tri_backend *const tri_backends[] = {&backend, NULL};

const struct tri_backend *tri_backend_find(const char *name)
{
    return strcmp(name, backend.name) == 0 ? &backend : NULL;
}

#endif
