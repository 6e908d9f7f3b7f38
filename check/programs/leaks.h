#pragma once
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>

/* What a process holds. */

enum { DESCRIPTORS, TASKS, HEAP, PAGES, KINDS };
static const char *const kinds[] = { "file descriptors", "threads", "bytes of malloc()", "pages of mappings" };

static long long entries(const char *path)
{
    long long n = 0;
    DIR *d = opendir(path);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static void look(long long *held)
{
    FILE *f = fopen("/proc/self/statm", "r");
    held[PAGES] = held[HEAP] = 0;
    if (f && fscanf(f, "%lld", &held[PAGES]) != 1)
        held[PAGES] = 0;
    if (f)
        fclose(f);
    held[DESCRIPTORS] = entries("/proc/self/fd");
    held[TASKS] = entries("/proc/self/task");
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
    held[HEAP] = (long long)(mallinfo2().uordblks + mallinfo2().hblkhd);
#elif defined(__GLIBC__)
    held[HEAP] = (long long)((unsigned)mallinfo().uordblks + (unsigned)mallinfo().hblkhd);
#endif
}
