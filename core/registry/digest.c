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

/* Algorithm: Yann Collet, "xxHash fast digest algorithm", doc/xxhash_spec.md of xxHash. */
#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static uint64_t xxh64_rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }
static uint64_t xxh64_round(uint64_t sum, uint64_t lane) { return xxh64_rotate(sum + lane * PRIME2, 31) * PRIME1; }
static uint64_t xxh64_merge(uint64_t h, uint64_t sum) { return (h ^ xxh64_round(0, sum)) * PRIME1 + PRIME4; }

static uint64_t digest_read_u64(const unsigned char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return le64toh(x);
}

static uint32_t digest_read_u32(const unsigned char *p)
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
            a = xxh64_round(a, digest_read_u64(p));
            b = xxh64_round(b, digest_read_u64(p + 8));
            c = xxh64_round(c, digest_read_u64(p + 16));
            d = xxh64_round(d, digest_read_u64(p + 24));
        }
        h = xxh64_rotate(a, 1) + xxh64_rotate(b, 7) + xxh64_rotate(c, 12) + xxh64_rotate(d, 18);
        h = xxh64_merge(xxh64_merge(xxh64_merge(xxh64_merge(h, a), b), c), d);
    }
    h += n;
    for (; end - p >= 8; p += 8)
        h = xxh64_rotate(h ^ xxh64_round(0, digest_read_u64(p)), 27) * PRIME1 + PRIME4;
    for (; end - p >= 4; p += 4)
        h = xxh64_rotate(h ^ digest_read_u32(p) * PRIME1, 23) * PRIME2 + PRIME3;
    for (; p < end; p++)
        h = xxh64_rotate(h ^ *p * PRIME5, 11) * PRIME1;
    h = (h ^ h >> 33) * PRIME2;
    h = (h ^ h >> 29) * PRIME3;
    return h ^ h >> 32;
}

/* ---- The note ------------------------------------------------------------------------------------------------------------ */

/* Header of the digest note that dovetail_op.h reserves: sizes of owner and content, type, owner. */
enum { NOTE_WORDS = 6, NOTE_HEADER_SIZE = 4 * NOTE_WORDS, MIN_MATCHING_WORDS = 4 };
static const struct {
    uint32_t owner_size, size, type;
    char owner[12];
} expected = { 9, DV__DIGEST_SIZE, DV_NOTE_DIGEST, "Dovetail" };

typedef struct note {
    uint64_t at; /* offset of the note's content in the file */
    bool found, damaged;
} note;

static Elf64_Phdr digest_get_program_header(const unsigned char *data, unsigned i)
{
    Elf64_Ehdr head;
    Elf64_Phdr p;
    memcpy(&head, data, sizeof head);
    memcpy(&p, data + head.e_phoff + i * sizeof p, sizeof p);
    return p;
}

static unsigned digest_count_program_headers(const unsigned char *data)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    return head.e_phnum;
}

/* Searches `size` bytes of the file from `begin` for the digest note. A match of MIN_MATCHING_WORDS of the header's six
 * words, one of them of the owner's name, is a damaged note. Returns true if a note was found. */
static bool note_try_find_in_range(const unsigned char *data, uint64_t begin, uint64_t size, note *out)
{
    uint32_t word[NOTE_WORDS], here[NOTE_WORDS];
    memcpy(word, &expected, NOTE_HEADER_SIZE);
    for (uint64_t at = (begin + 3) / 4 * 4; at + NOTE_HEADER_SIZE + DV__DIGEST_SIZE <= begin + size; at += 4) {
        memcpy(here, data + at, NOTE_HEADER_SIZE);
        const bool named = here[3] == word[3] || here[4] == word[4];
        if (!named)
            continue;
        int same = 0;
        for (int i = 0; i < NOTE_WORDS; i++)
            same += here[i] == word[i];
        if (same < MIN_MATCHING_WORDS)
            continue;
        *out = (note){ .at = at + NOTE_HEADER_SIZE, .found = true, .damaged = same < NOTE_WORDS };
        return true;
    }
    return false;
}

/* True if a segment is a valid sequence of notes (ELF-64, "Note Section"). Each note has an owner or a type, and its sizes stay
 * inside the segment. */
static bool note_is_valid_segment(const unsigned char *data, const Elf64_Phdr *p)
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

/* Finds the digest note in the note segments, else in any loaded segment, since its program header may be damaged, too. If
 * no note is found and a note segment is invalid, the note may have been overwritten: a damaged note is returned. */
static note note_find(const unsigned char *data)
{
    static const unsigned types[] = { PT_NOTE, PT_LOAD };
    note found = { .found = false };
    for (unsigned t = 0; t < 2; t++)
        for (unsigned i = 0; i < digest_count_program_headers(data); i++) {
            const Elf64_Phdr p = digest_get_program_header(data, i);
            if (p.p_type == types[t] && note_try_find_in_range(data, p.p_offset, p.p_filesz, &found))
                return found;
        }
    for (unsigned i = 0; i < digest_count_program_headers(data); i++) {
        const Elf64_Phdr p = digest_get_program_header(data, i);
        if (p.p_type == PT_NOTE && !note_is_valid_segment(data, &p))
            return (note){ .found = true, .damaged = true };
    }
    return found;
}

/* ---- The digest ---------------------------------------------------------------------------------------------------------- */

/* Continues a digest with the bytes [begin, end) of the file, except for a hole, and returns the new digest. */
static uint64_t digest_add_range(
    const unsigned char *data, uint64_t begin, uint64_t end, uint64_t hole_begin, uint64_t hole_size, uint64_t digest_so_far)
{
    if (hole_begin + hole_size <= begin || hole_begin >= end)
        return dv__xxh64(data + begin, end - begin, digest_so_far);
    if (hole_begin > begin)
        digest_so_far = dv__xxh64(data + begin, hole_begin - begin, digest_so_far);
    return hole_begin + hole_size < end ? dv__xxh64(data + hole_begin + hole_size, end - hole_begin - hole_size, digest_so_far)
                                        : digest_so_far;
}

/* Returns the digest of the loaded bytes, without the DV__DIGEST_SIZE bytes at digest_offset. */
static uint64_t digest_compute_of_loaded_bytes(const unsigned char *data, uint64_t digest_offset)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    const uint64_t tables = head.e_phoff;
    head.e_shoff = 0;
    head.e_shentsize = head.e_shnum = head.e_shstrndx = 0;
    uint64_t h = dv__xxh64((const unsigned char *)&head, sizeof head, 0);
    h = dv__xxh64(data + tables, head.e_phnum * sizeof(Elf64_Phdr), h);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        const Elf64_Phdr p = digest_get_program_header(data, i);
        if (p.p_type == PT_LOAD) { /* the ELF header is in the digest already, without its fields for sections */
            const uint64_t from = p.p_offset > sizeof head ? p.p_offset : sizeof head, end = p.p_offset + p.p_filesz;
            if (end > from)
                h = digest_add_range(data, from, end, digest_offset, DV__DIGEST_SIZE, h);
        }
    }
    return h;
}

static int digest_fail(const char *where, const char *reason)
{
    return dv_fail(DV_EBINARY, "%s: not a usable operator binary: %s", where, reason);
}

int dv__digest_check(const unsigned char *data, const char *where)
{
    const note n = note_find(data);
    if (!n.found)
        return DV_OK;
    const uint64_t stored = n.damaged ? 0 : digest_read_u64(data + n.at),
                   complement = n.damaged ? 0 : digest_read_u64(data + n.at + 8);
    if (!n.damaged && !stored && !complement)
        return DV_OK;
    if (n.damaged || stored != ~complement)
        return digest_fail(where, "damaged: the note that holds its digest is not as `dovetail build` writes it");
    return stored == digest_compute_of_loaded_bytes(data, n.at)
        ? DV_OK
        : digest_fail(where,
              "its content does not match its digest: it is damaged, or a tool such as patchelf or auditwheel changed it "
              "after `dovetail build` (then `dovetail build --restamp FILE` renews the digest)");
}

int dv__digest_make(
    const unsigned char *data, const char *where, uint64_t *note_offset, unsigned char digest_bytes[DV__DIGEST_SIZE])
{
    const note n = note_find(data);
    if (!n.found)
        return digest_fail(
            where, "it has no note for a digest: another linker or an older dovetail_op.h made it; build it again");
    if (n.damaged)
        return digest_fail(where, "damaged: the note that holds its digest is not as `dovetail build` writes it; build it again");
    const uint64_t value = digest_compute_of_loaded_bytes(data, n.at);
    const uint64_t words[] = { htole64(value), htole64(~value) };
    *note_offset = n.at;
    memcpy(digest_bytes, words, DV__DIGEST_SIZE);
    return DV_OK;
}
