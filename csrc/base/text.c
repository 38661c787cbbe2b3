/* A text that grows. */
#include "csrc/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { FIRST_ROOM = 4096 };

/* Room for `more` characters and the 0. */
static void reserve(struct tri_text *text, size_t more)
{
    size_t room = text->room < FIRST_ROOM ? FIRST_ROOM : text->room;
    while (room <= text->used + more)
        room *= 2;
    if (!text->grows || room == text->room)
        return;
    char *data = realloc(text->data, room);
    text->failed = text->failed || data == NULL;
    if (data == NULL)
        return;
    text->data = data;
    text->room = room;
}

void tri_text_add(struct tri_text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (n > 0) {
        reserve(text, (size_t)n);
        const size_t left = text->room - text->used;
        if (left > 0)
            (void)vsnprintf(text->data + text->used, left, format, again);
        text->used += (size_t)n < left ? (size_t)n : left == 0 ? 0 : left - 1;
    }
    va_end(again);
}

void tri_text_printable(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = bytes[i] < 0x20 || bytes[i] == 0x7f ? '?' : (char)bytes[i];
    out[n] = '\0';
}

void tri_text_add_json(struct tri_text *text, const char *string)
{
    if (string == NULL) {
        tri_text_add(text, "null");
        return;
    }
    tri_text_add(text, "\"");
    for (const char *c = string; *c != '\0';) {
        const char *plain = c;
        while (*c != '"' && *c != '\\' && (unsigned char)*c >= ' ')
            c++;
        tri_text_add(text, "%.*s", (int)(c - plain), plain);
        if (*c == '"' || *c == '\\')
            tri_text_add(text, "\\%c", *c++);
        else if (*c != '\0')
            tri_text_add(text, "\\u%04x", (unsigned)*c++);
    }
    tri_text_add(text, "\"");
}
