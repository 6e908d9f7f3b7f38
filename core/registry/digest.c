/* Digest of an operator binary's loaded bytes.
 *
 * Covered is the content that the system's loader reads: the ELF header, the program headers and the content of every PT_LOAD
 * segment in the file. The section headers and the fields of the ELF header that locate them are not covered. strip and objcopy
 * change these, and leave the loaded bytes as they are. The digest's own bytes are not covered either.
 *
 * The note is found by its first 24 bytes, not by walking the notes. So a damaged size or owner counts as damage, not as a binary
 * without a note. */
#include "registry/digest.h"

#include <elf.h>
#include <endian.h>
#include <string.h>

#include "base/error.h"

/* ---- XXH64 --------------------------------------------------------------------------------------------------------------- */

/* Yann Collet, "xxHash fast digest algorithm", doc/xxhash_spec.md of xxHash. */
#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }
static uint64_t mix(uint64_t sum, uint64_t lane) { return rotate(sum + lane * PRIME2, 31) * PRIME1; }
static uint64_t merge(uint64_t h, uint64_t sum) { return (h ^ mix(0, sum)) * PRIME1 + PRIME4; }

static uint64_t read8(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return le64toh(x);
}

static uint32_t read4(const unsigned char *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return le32toh(x);
}

uint64_t dv__xxh64(const unsigned char *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data, *const end = data + n;
    uint64_t h = seed + PRIME5;
    if (n >= 32) {
        uint64_t a = seed + PRIME1 + PRIME2, b = seed + PRIME2, c = seed, d = seed - PRIME1;
        for (; end - p >= 32; p += 32) {
            a = mix(a, read8(p));
            b = mix(b, read8(p + 8));
            c = mix(c, read8(p + 16));
            d = mix(d, read8(p + 24));
        }
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    h += n;
    for (; end - p >= 8; p += 8)
        h = rotate(h ^ mix(0, read8(p)), 27) * PRIME1 + PRIME4;
    for (; end - p >= 4; p += 4)
        h = rotate(h ^ read4(p) * PRIME1, 23) * PRIME2 + PRIME3;
    for (; p < end; p++)
        h = rotate(h ^ *p * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}

/* ---- The note ------------------------------------------------------------------------------------------------------------ */

/* The note of dovetail_op.h up to its content: sizes of owner and content, type, owner. */
enum { NOTE_WORDS = 6, NOTE_HEAD = 4 * NOTE_WORDS, WORDS_OF_DAMAGED = 4 };
static const struct {
    uint32_t owner_size, size, type;
    char owner[12];
} expected = { 9, DV__STAMP, DV_NOTE_DIGEST, "Dovetail" };

typedef struct note {
    uint64_t at; /* offset of its content in the file */
    bool found, damaged;
} note;

static Elf64_Phdr segment(const unsigned char *data, unsigned i)
{
    Elf64_Ehdr head;
    Elf64_Phdr p;
    memcpy(&head, data, sizeof head);
    memcpy(&p, data + head.e_phoff + i * sizeof p, sizeof p);
    return p;
}

static unsigned nsegments(const unsigned char *data)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    return head.e_phnum;
}

/* Searches a part of the file for the note. A match of WORDS_OF_DAMAGED of its six words, one of them of the owner's name, is a
 * damaged note. */
static bool note_search(const unsigned char *data, uint64_t from, uint64_t n, note *out)
{
    uint32_t word[NOTE_WORDS], here[NOTE_WORDS];
    memcpy(word, &expected, NOTE_HEAD);
    for (uint64_t at = (from + 3) / 4 * 4; at + NOTE_HEAD + DV__STAMP <= from + n; at += 4) {
        memcpy(here, data + at, NOTE_HEAD);
        const bool named = here[3] == word[3] || here[4] == word[4];
        if (!named)
            continue;
        int same = 0;
        for (int i = 0; i < NOTE_WORDS; i++)
            same += here[i] == word[i];
        if (same < WORDS_OF_DAMAGED)
            continue;
        *out = (note){ .at = at + NOTE_HEAD, .found = true, .damaged = same < NOTE_WORDS };
        return true;
    }
    return false;
}

/* True if a segment is a valid sequence of notes (ELF-64, "Note Section"). Each note has an owner or a type, and its sizes stay
 * inside the segment. */
static bool is_notes(const unsigned char *data, const Elf64_Phdr *p)
{
    const uint64_t align = p->p_align == 8 ? 8 : 4, begin = p->p_offset, end = p->p_offset + p->p_filesz;
    for (uint64_t at = begin; at + sizeof(Elf64_Nhdr) <= end;) {
        Elf64_Nhdr n;
        memcpy(&n, data + at, sizeof n);
        const uint64_t owner = (sizeof n + (uint64_t)n.n_namesz + align - 1) / align * align;
        if ((!n.n_namesz && !n.n_type) || owner + n.n_descsz > end - at)
            return false;
        at += (owner + n.n_descsz + align - 1) / align * align;
    }
    return true;
}

/* Finds the note in the note segments, else in any loaded segment, since its program header may be damaged, too. If it is not
 * found and a note segment is invalid, it may have been overwritten: the result is a damaged note. */
static note note_find(const unsigned char *data)
{
    static const unsigned types[] = { PT_NOTE, PT_LOAD };
    note found = { .found = false };
    for (unsigned t = 0; t < 2; t++)
        for (unsigned i = 0; i < nsegments(data); i++) {
            const Elf64_Phdr p = segment(data, i);
            if (p.p_type == types[t] && note_search(data, p.p_offset, p.p_filesz, &found))
                return found;
        }
    for (unsigned i = 0; i < nsegments(data); i++) {
        const Elf64_Phdr p = segment(data, i);
        if (p.p_type == PT_NOTE && !is_notes(data, &p))
            return (note){ .found = true, .damaged = true };
    }
    return found;
}

/* ---- The digest ---------------------------------------------------------------------------------------------------------- */

/* Continues the digest h with the bytes [from, end) of the file, except for one hole. */
static uint64_t add_part(const unsigned char *data, uint64_t from, uint64_t end, uint64_t hole, uint64_t hole_size, uint64_t h)
{
    if (hole + hole_size <= from || hole >= end)
        return dv__xxh64(data + from, end - from, h);
    if (hole > from)
        h = dv__xxh64(data + from, hole - from, h);
    return hole + hole_size < end ? dv__xxh64(data + hole + hole_size, end - hole - hole_size, h) : h;
}

static uint64_t digest(const unsigned char *data, uint64_t stamp_at)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    const uint64_t tables = head.e_phoff;
    head.e_shoff = 0;
    head.e_shentsize = head.e_shnum = head.e_shstrndx = 0;
    uint64_t h = dv__xxh64((const unsigned char *)&head, sizeof head, 0);
    h = dv__xxh64(data + tables, head.e_phnum * sizeof(Elf64_Phdr), h);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        const Elf64_Phdr p = segment(data, i);
        if (p.p_type == PT_LOAD) { /* the ELF header was added above, without its fields for sections */
            const uint64_t from = p.p_offset > sizeof head ? p.p_offset : sizeof head, end = p.p_offset + p.p_filesz;
            if (end > from)
                h = add_part(data, from, end, stamp_at, DV__STAMP, h);
        }
    }
    return h;
}

static int fail(const char *where, const char *what)
{
    return dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", where, what);
}

int dv__digest_check(const unsigned char *data, const char *where)
{
    const note n = note_find(data);
    if (!n.found)
        return DV_OK;
    const uint64_t stored = n.damaged ? 0 : read8(data + n.at), complement = n.damaged ? 0 : read8(data + n.at + 8);
    if (!n.damaged && !stored && !complement)
        return DV_OK;
    if (n.damaged || stored != ~complement)
        return fail(where, "damaged: the note that holds its digest is not as `dovetail build` writes it");
    return stored == digest(data, n.at)
        ? DV_OK
        : fail(where,
              "its content does not match its digest: it is damaged, or a tool such as patchelf or auditwheel changed it "
              "after `dovetail build` (then `dovetail build --restamp FILE` renews the digest)");
}

int dv__digest_make(const unsigned char *data, const char *where, uint64_t *at, unsigned char stamp[DV__STAMP])
{
    const note n = note_find(data);
    if (!n.found)
        return fail(where, "it has no note for a digest: another linker or an older dovetail_op.h made it; build it again");
    if (n.damaged)
        return fail(where, "damaged: the note that holds its digest is not as `dovetail build` writes it; build it again");
    const uint64_t value = digest(data, n.at);
    const uint64_t words[] = { htole64(value), htole64(~value) };
    *at = n.at;
    memcpy(stamp, words, DV__STAMP);
    return DV_OK;
}
