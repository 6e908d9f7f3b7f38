/* Operator binaries on disk: what is loaded, what is refused and how. Binaries are compiled here, from the sources below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dovetail.h"
#include "failing.h"
#include "registry/binary.h"
#include "registry/digest.h"
#include "registry/elf_check.h"

static char dir[] = "/tmp/dovetail-test-XXXXXX";

static const char *in_dir(const char *name)
{
    static char paths[8][512];
    static unsigned n;
    char *path = paths[n++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static unsigned char *take(const char *name, size_t *size)
{
    FILE *f = fopen(in_dir(name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*size);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* Compile a source into name.so. */
static void compile(const char *name, const char *source, const char *flags)
{
    char command[2048], c[64], so[64];
    snprintf(c, sizeof c, "%s.c", name);
    snprintf(so, sizeof so, "%s.so", name);
    put(c, source, strlen(source));
    snprintf(command, sizeof command, TEST_CC " -std=c11 -O1 -shared -fPIC -fvisibility=hidden -I%s/include %s -o %s %s",
        SOURCE_DIR, flags, in_dir(so), in_dir(c));
    assert_int_equal(system(command), 0);
}

static const char good_source[] =
    "#include <dovetail_op.h>\n"
    "struct scale { const dv_tensor *x; double by; dv_tensor *out; };\n"
    "static int scale_f32(dv_context *ctx, const struct scale *a)\n"
    "{ (void)ctx; for (int64_t i = 0; i < dv_numel(a->x); i++) ((float *)a->out->data)[i] = (float)a->by * ((float "
    "*)a->x->data)[i]; return DV_OK; }\n"
    "DV_OPERATOR(scale, struct scale, (x, by, out), .schema = \"scale(Tensor x, float by) -> Tensor out\",\n"
    "    .kernels = DV_KERNELS(DV_KERNEL(struct scale, \"cpu\", \"f32\", scale_f32)));\n"
    "#ifdef CALLS\ndouble cos(double);\n__attribute__((used)) static double calls(double x) { return cos(x); }\n#endif\n"
    "#ifndef NAME\n#define NAME my_ops\n#endif\n"
    "DV_LIBRARY(NAME, &dv_op_scale);\n";

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || setenv("TMPDIR", dir, 1)) /* private copies go there too */
        return -1;
    compile("good", good_source, "");
    compile("asserts", good_source, "-DNAME=asserts -DCALLS -Wl,--no-as-needed -lm");
    return 0;
}

static int teardown(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- Loading ------------------------------------------------------------------------------------------------------------- */

static void test_good(void **state)
{
    dv__binary a, b;
    (void)state;
    assert_int_equal(dv__binary_open(in_dir("good.so"), &a), DV_OK);
    assert_string_equal(a.decl->name, "my_ops");
    assert_string_equal(a.decl->operators[0]->name, "scale");
    assert_int_equal(strlen(a.id), 32);
    assert_int_equal(*a.path, '/');
    assert_int_equal(dv__binary_open(in_dir("good.so"), &b), DV_OK); /* the same content: the same code */
    assert_ptr_equal(a.decl, b.decl);
    dv__binary_deinit(&b);
    dv__binary_deinit(&a);
    dv__binary_deinit(&a);
}

static void test_replaced(void **state) /* a new file under an old name, also while the old one is loaded */
{
    dv__binary a, b;
    (void)state;
    compile("same", good_source, "-DNAME=first");
    assert_int_equal(dv__binary_open(in_dir("same.so"), &a), DV_OK);
    compile("same", good_source, "-DNAME=second");
    assert_int_equal(dv__binary_open(in_dir("same.so"), &b), DV_OK);
    assert_string_equal(a.decl->name, "first");
    assert_string_equal(b.decl->name, "second");
    put("same.so", "", 0); /* and cut off in place */
    assert_string_equal(a.decl->operators[0]->schema, "scale(Tensor x, float by) -> Tensor out");
    assert_int_not_equal(strcmp(a.id, b.id), 0);
    dv__binary_deinit(&a);
    dv__binary_deinit(&b);
}

static void test_places(void **state) /* where the private copy may live */
{
    dv__binary b;
    struct stat st;
    char path[600];
    (void)state;
    setenv("TMPDIR", dir, 1);
    compile("place", good_source, "-DNAME=place1");
    assert_int_equal(dv__binary_open(in_dir("place.so"), &b), DV_OK);
    snprintf(path, sizeof path, "%s/dovetail-%u", dir, (unsigned)geteuid());
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    snprintf(path, sizeof path, "%s/dovetail-%u/%s.so", dir, (unsigned)geteuid(), b.id);
    assert_int_equal(stat(path, &st), 0);
    dv__binary_deinit(&b);
    setenv("TMPDIR", "relative", 1); /* not used */
    compile("place", good_source, "-DNAME=place2");
    assert_int_equal(dv__binary_open(in_dir("place.so"), &b), DV_OK);
    dv__binary_deinit(&b);
    setenv("TMPDIR", dir, 1);
}

static void test_foreign_directory(void **state) /* a directory that others can write is not used */
{
    dv__binary b;
    char path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/open", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    setenv("TMPDIR", path, 1);
    snprintf(path, sizeof path, "%s/open/dovetail-%u", dir, (unsigned)geteuid());
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    compile("place", good_source, "-DNAME=place3");
    assert_int_equal(dv__binary_open(in_dir("place.so"), &b), DV_OK);
    assert_int_equal(rmdir(path), 0); /* empty */
    dv__binary_deinit(&b);
    setenv("TMPDIR", dir, 1);
}

/* ---- Refusals ------------------------------------------------------------------------------------------------------------ */

static void expect(const char *name, int status, const char *message)
{
    dv__binary b;
    const int got = dv__binary_open(in_dir(name), &b);
    if (got != status || !strstr(dv_last_error(), message))
        fail_msg("%s: %s \"%s\", expected %s with \"%s\"", name, dv_status_name(got), dv_last_error(), dv_status_name(status),
            message);
    assert_non_null(strstr(dv_last_error(), name));
    assert_null(b.path);
    assert_null(b.decl);
}

static unsigned private_files(void)
{
    char path[600];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/dovetail-%u", dir, (unsigned)geteuid());
    DIR *list = opendir(path);
    assert_non_null(list);
    while (readdir(list))
        n++;
    closedir(list);
    return n;
}

static void test_refused(void **state)
{
    size_t size;
    unsigned char *good = take("good.so", &size);
    (void)state;
    expect("absent.so", DV_EIO, "No such file");
    expect("", DV_EIO, "not a file");
    put("empty.so", "", 0);
    expect("empty.so", DV_EBINARY, "truncated");
    put("text.so", "int main(void) { return 0; }\n", 29);
    expect("text.so", DV_EBINARY, "not an ELF file");
#define WITH(name, at, T, value, message)   \
    do {                                    \
        unsigned char *copy = malloc(size); \
        const T v = (T)(value);             \
        memcpy(copy, good, size);           \
        memcpy(copy + (at), &v, sizeof v);  \
        put(name, copy, size);              \
        expect(name, DV_EBINARY, message);  \
        free(copy);                         \
    } while (0)
    WITH("class.so", EI_CLASS, uint8_t, ELFCLASS32, "a 32-bit ELF file");
    WITH("order.so", EI_DATA, uint8_t, 3 - good[EI_DATA], "other byte order");
    WITH("machine.so", offsetof(Elf64_Ehdr, e_machine), uint16_t, EM_S390, "made for s390");
    WITH("type.so", offsetof(Elf64_Ehdr, e_type), uint16_t, ET_EXEC, "not a shared object (ELF type 2, a program)");
    WITH("object.so", offsetof(Elf64_Ehdr, e_type), uint16_t, ET_REL, "an object file");
    WITH("version.so", offsetof(Elf64_Ehdr, e_version), uint32_t, 2, "ELF version");
    WITH("phoff.so", offsetof(Elf64_Ehdr, e_phoff), uint64_t, size, "the program header table");
    WITH("phoff2.so", offsetof(Elf64_Ehdr, e_phoff), uint64_t, UINT64_MAX - 7, "the program header table");
    WITH("phnum.so", offsetof(Elf64_Ehdr, e_phnum), uint16_t, 0, "corrupt ELF header");
    WITH("phnum2.so", offsetof(Elf64_Ehdr, e_phnum), uint16_t, 60000, "the program header table");
    WITH("shoff.so", offsetof(Elf64_Ehdr, e_shoff), uint64_t, size - 1, "the section header table");
    free(good);
    compile("none", "int nothing;\n", "");
    expect("none.so", DV_EBINARY, "it exports no dovetail_library_1 (is DV_LIBRARY missing?)");
    compile("future",
        "__attribute__((visibility(\"default\"))) int dovetail_library_2 = 1, dovetail_library_3 = 1, dovetail_library_x;\n", "");
    expect("future.so", DV_EABI, "this runtime has ABI 1");
    compile("function", "__attribute__((visibility(\"default\"))) int dovetail_library_1(void) { return 1; }\n", "");
    expect("function.so", DV_EBINARY, "not a descriptor");
    compile("missing",
        "extern int no_such_function(void);\n#include <dovetail_op.h>\nstruct s { int64_t n; };\n"
        "static int k(dv_context *c, const struct s *s) { (void)c; (void)s; return no_such_function(); }\n"
        "DV_OPERATOR(f, struct s, (n), .kernels = DV_KERNELS(DV_KERNEL(struct s, \"cpu\", NULL, k)));\nDV_LIBRARY(m, "
        "&dv_op_f);\n",
        "");
    unsigned files = private_files();
    expect("missing.so", DV_EBINARY, "undefined symbol: no_such_function");
    assert_int_equal(private_files(), files); /* nothing is left behind */
}

/* The check alone, on a copy that ends where the file ends: a byte read beyond is seen by the sanitizers. */
static int check(const unsigned char *data, size_t size)
{
    unsigned char *copy = malloc(size ? size : 1);
    if (size)
        memcpy(copy, data, size);
    const int status = dv__elf_check(copy, size, "cut.so");
    free(copy);
    return status;
}

/* The entry of a tag in the dynamic section; its first one for DT_NULL - 1. */
static Elf64_Dyn *dynamic_entry(unsigned char *data, int64_t tag)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, data + head.e_phoff + i * sizeof p, sizeof p);
        if (p.p_type != PT_DYNAMIC)
            continue;
        Elf64_Dyn *d = (Elf64_Dyn *)(void *)(data + p.p_offset);
        while (tag != DT_NULL - 1 && d->d_tag != tag && d->d_tag != DT_NULL)
            d++;
        return tag == DT_NULL - 1 || d->d_tag == tag ? d : NULL;
    }
    return NULL;
}

static void test_truncated(void **state)
{
    size_t size, last = 0;
    unsigned char *good = take("good.so", &size);
    (void)state;
    for (size_t n = 0; n < size; n += n < 4096 || n > size - 4096 ? 1 : 7) { /* everywhere */
        const int status = check(good, n);
        if (status != DV_EBINARY)
            fail_msg("cut after %zu of %zu bytes: %s", n, size, dv_status_name(status));
        last = n;
    }
    assert_int_equal(last, size - 1);
    assert_int_equal(check(good, size), DV_OK);
    for (size_t n = 0; n < size; n += n < 2048 ? 61 : 997) { /* and through the file system */
        put("cut.so", good, n);
        expect("cut.so", DV_EBINARY, "");
    }
    free(good);
}

/* What the loader asserts of the dynamic section, and ends the process: each is refused. */
static void test_loader_asserts(void **state)
{
    static const struct {
        int64_t tag;
        uint64_t value;
        const char *message;
    } cases[] = { { DT_PLTREL, DT_REL, "DT_PLTREL" }, { DT_PLTREL, 0, "DT_PLTREL" }, { DT_RELACOUNT, 1u << 20, "DT_RELACOUNT" },
        { DT_RELACOUNT, UINT64_MAX, "DT_RELACOUNT" }, { DT_RELAENT, 23, "the size of its relocations" } };
    size_t size;
    unsigned char *good = take("asserts.so", &size);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *copy = malloc(size);
        memcpy(copy, good, size);
        Elf64_Dyn *d = dynamic_entry(copy, cases[i].tag);
        assert_non_null(d);
        d->d_un.d_val = cases[i].value;
        put("asserts2.so", copy, size);
        expect("asserts2.so", DV_EBINARY, cases[i].message);
        free(copy);
    }
    Elf64_Dyn *count = dynamic_entry(good, DT_RELACOUNT), *size_of = dynamic_entry(good, DT_RELASZ);
    assert_true(count->d_un.d_val < size_of->d_un.d_val / sizeof(Elf64_Rela)); /* GLOB_DAT of a weak symbol comes after them */
    count->d_un.d_val++;
    put("asserts2.so", good, size);
    expect("asserts2.so", DV_EBINARY, "DT_RELACOUNT");
    dynamic_entry(good, DT_RELAENT)->d_tag = DT_DEBUG;
    put("asserts2.so", good, size);
    expect("asserts2.so", DV_EBINARY, "the size of its relocations");
    free(good);
}

/* In a child process: opens it and ends. The test's handlers of signals are for the parent. */
static void open_flipped(void)
{
    static const int numbers[] = { SIGBUS, SIGSEGV, SIGILL, SIGFPE };
    dv__binary b;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        signal(numbers[i], SIG_DFL);
    setrlimit(RLIMIT_CPU, &(struct rlimit){ 20, 20 }); /* seconds of processor time: also right on a busy machine */
    _exit(dv__binary_open(in_dir("flipped.so"), &b) == DV_OK ? 0 : 1);
}

/* Every bit of the dynamic section's tags and small values in turn: refused, or the loader survives it. */
static void test_flipped_dynamic(void **state)
{
    size_t size;
    unsigned char *good = take("asserts.so", &size);
    unsigned loaded = 0;
    (void)state;
    const Elf64_Dyn *first = dynamic_entry(good, DT_NULL - 1), *end = dynamic_entry(good, DT_NULL);
    const size_t from = (size_t)((const unsigned char *)first - good), to = (size_t)((const unsigned char *)end - good);
    for (size_t bit = from * 8; bit < to * 8; bit++) {
        unsigned char *copy = malloc(size);
        memcpy(copy, good, size);
        copy[bit / 8] ^= (unsigned char)(1u << bit % 8);
        const bool fine = (bit - from * 8) % 64 < 36 && check(copy, size) == DV_OK;
        loaded += fine;
        if (fine && (loaded % 16 == 0 || !getenv("UNDER_QEMU"))) { /* where a process takes long to start, some of them */
            put("flipped.so", copy, size);
            fflush(NULL);
            const pid_t child = fork();
            if (child == 0)
                open_flipped();
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            if (!WIFEXITED(how) || WEXITSTATUS(how) > 1)
                fail_msg("bit %zu of entry %zu ended the process: status %#x", (bit - from * 8) % 128, (bit / 8 - from) / 16,
                    (unsigned)how);
        }
        free(copy);
    }
    assert_true(loaded > 0);
    free(good);
}

#define LARGE ((off_t)3 << 30)

/* Of this process, in bytes: a sanitizer takes terabytes. */
static rlim_t address_space(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* A large file is not read whole: only what the headers of a binary name. */
static void test_large(void **state)
{
    struct rlimit old, little = { 0, 0 };
    size_t size;
    unsigned char *good = take("good.so", &size);
    unsigned char *whole = take("good.so", &size);
    Elf64_Ehdr head;
    dv__binary a, b;
    (void)state;
    memcpy(&head, good, sizeof head);
    const unsigned sections = head.e_shnum;
    assert_int_equal(dv__binary_open(in_dir("good.so"), &a), DV_OK);
    getrlimit(RLIMIT_AS, &old);
    little = old;
    little.rlim_cur = address_space() + ((rlim_t)1 << 30);
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0); /* reading it would be out of memory */
    put("large.so", "not", 3);
    assert_int_equal(truncate(in_dir("large.so"), LARGE), 0);
    expect("large.so", DV_EBINARY, "not an ELF file (3221225472 bytes)");
    put("large.so", good, size);
    assert_int_equal(truncate(in_dir("large.so"), LARGE), 0);
    assert_int_equal(dv__binary_open(in_dir("large.so"), &b), DV_OK); /* what follows belongs to nothing */
    assert_string_equal(a.id, b.id);
    assert_ptr_equal(a.decl, b.decl);
    head.e_shoff = (Elf64_Off)LARGE - head.e_shnum * sizeof(Elf64_Shdr);
    memcpy(good, &head, sizeof head);
    put("large.so", good, size);
    assert_int_equal(truncate(in_dir("large.so"), LARGE), 0);
    expect("large.so", DV_EBINARY, "belong to no section");
    for (unsigned i = 0; i < head.e_phnum; i++) { /* a segment that names what no section has */
        for (unsigned shnum = 0; shnum <= sections; shnum += sections) {
            unsigned char *copy = malloc(size);
            Elf64_Phdr p;
            memcpy(copy, whole, size);
            memcpy(&head, copy, sizeof head);
            memcpy(&p, copy + head.e_phoff + i * sizeof p, sizeof p);
            head.e_shnum = (Elf64_Half)shnum;
            p.p_filesz = (Elf64_Xword)LARGE - p.p_offset;
            p.p_memsz = p.p_memsz > p.p_filesz ? p.p_memsz : p.p_filesz;
            memcpy(copy, &head, sizeof head);
            memcpy(copy + head.e_phoff + i * sizeof p, &p, sizeof p);
            put("large.so", copy, size);
            free(copy);
            assert_int_equal(truncate(in_dir("large.so"), LARGE), 0);
            if (p.p_type != PT_GNU_STACK)
                expect("large.so", DV_EBINARY, "belong to no section");
        }
    }
    for (unsigned i = 0; i < sections; i++) { /* a section that does */
        unsigned char *copy = malloc(size);
        Elf64_Shdr h;
        memcpy(copy, whole, size);
        memcpy(&head, copy, sizeof head);
        memcpy(&h, copy + head.e_shoff + i * sizeof h, sizeof h);
        h.sh_size = (Elf64_Xword)LARGE - h.sh_offset;
        memcpy(copy + head.e_shoff + i * sizeof h, &h, sizeof h);
        put("large.so", copy, size);
        free(copy);
        assert_int_equal(truncate(in_dir("large.so"), LARGE), 0);
        if (h.sh_type != SHT_NULL && h.sh_type != SHT_NOBITS)
            expect("large.so", DV_EBINARY, "strip the file");
    }
    setrlimit(RLIMIT_AS, &old);
    dv__binary_deinit(&a);
    dv__binary_deinit(&b);
    unlink(in_dir("large.so"));
    free(whole);
    free(good);
}

/* Corrupt headers: refused, or harmless. The loader itself must survive what the check lets through, in a child process. */
static void test_flipped(void **state)
{
    size_t size;
    unsigned char *good = take("good.so", &size);
    uint32_t seed = 12345;
    const int runs = getenv("UNDER_QEMU") ? 2000 : 20000;
    unsigned refused = 0, loaded = 0, crashed = 0;
    (void)state;
    Elf64_Ehdr head;
    memcpy(&head, good, sizeof head);
    const size_t headers = head.e_phoff + head.e_phnum * sizeof(Elf64_Phdr);
    for (int i = 0; i < runs; i++) {
        unsigned char *copy = malloc(size);
        memcpy(copy, good, size);
        for (int flips = 1 + i % 3; flips > 0; flips--) {
            seed = seed * 1664525 + 1013904223;
            const size_t at = i % 4 ? (seed >> 4) % headers : (seed >> 4) % size;
            copy[at] ^= (unsigned char)(1u << (seed & 7));
        }
        const int status = check(copy, size);
        assert_true(status == DV_OK || status == DV_EBINARY || status == DV_EABI);
        refused += status != DV_OK;
        const bool in_headers = i % 4 != 0;
        if (status == DV_OK && in_headers && i < 2000 && !getenv("UNDER_QEMU")) { /* it maps a huge segment page by page */
            put("flipped.so", copy, size);
            fflush(NULL);
            const pid_t child = fork();
            if (child == 0)
                open_flipped();
            int how;
            assert_int_equal(waitpid(child, &how, 0), child);
            crashed += WIFSIGNALED(how);
            loaded++;
            if (WIFSIGNALED(how) && WTERMSIG(how) == SIGBUS)
                fail_msg("SIGBUS");
        }
        free(copy);
    }
    print_message(
        "of %d with flipped bits %u were refused; of %u given to the loader %u crashed in it\n", runs, refused, loaded, crashed);
    assert_int_equal(crashed, 0);
    free(good);
}

static int open_fresh(void *unused)
{
    dv__binary b;
    (void)unused;
    const int status = dv__binary_open(in_dir("fresh.so"), &b);
    dv__binary_deinit(&b);
    return status;
}

static void test_allocations(void **state) /* each in turn, each time with content that was never loaded */
{
    size_t size;
    unsigned char *good = take("good.so", &size);
    (void)state;
    for (long n = 1;; n++) {
        unsigned char *copy = malloc(size);
        failing f;
        Elf64_Ehdr head;
        memcpy(copy, good, size);
        memcpy(&head, good, sizeof head);
        memcpy(copy + head.e_shoff + offsetof(Elf64_Shdr, sh_addr), &n, sizeof n); /* of no section: nobody reads it */
        put("fresh.so", copy, size);
        free(copy);
        const int status = failing_once(open_fresh, NULL, n, false, &f);
        if (!f.failed) {
            assert_int_equal(status, DV_OK);
            assert_int_equal(f.live, 1); /* the note that it was loaded */
            assert_true(n > 3);
            break;
        }
        assert_true(status == DV_ENOMEM || status == DV_OK);
        assert_int_equal(f.live, status == DV_OK);
    }
    free(good);
}

/* ---- The digest ---------------------------------------------------------------------------------------------------------- */

/* Compares with values of the reference implementation (xxhash 4.1.0 of PyPI) for the bytes 1, 8, 15, ... */
static void test_xxh64(void **state)
{
    static const struct {
        size_t n;
        uint64_t plain, seeded;
    } rows[] = { { 0, 0xef46db3751d8e999, 0x7fef5b0c316777ed }, { 1, 0x8a4127811b21e730, 0x49b37a1d0bc5817b },
        { 3, 0xb6e6c910c2fd373a, 0xa630f6c3a51d9f7b }, { 4, 0x22eda2cf6af4c124, 0x9f352adc09d72afc },
        { 7, 0x34084d91a233a751, 0xa92e445ac25beee6 }, { 8, 0xc6f1803a5e0b3222, 0x57154ad67cbe8fd4 },
        { 12, 0x9178b724dce384c0, 0x402da477c0ad1597 }, { 31, 0x6ab1c40e29f50073, 0x0b3cc889139e611c },
        { 32, 0x5a0756fbe9ecd3d1, 0xf47c2b9d7ee32d35 }, { 33, 0xdc50cdc37bb9c183, 0x27df034e52788006 },
        { 63, 0x10dd94885c71894a, 0x70501950b6d5d94b }, { 64, 0x90083da9cdb9d795, 0x65e459246da4d2de },
        { 100, 0xd248bfc5208b0b16, 0x4bff7eb1993a85de }, { 128, 0x85cbe89fe5a0317d, 0x17872d9e376975ba } };
    unsigned char bytes[128];
    (void)state;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7 + 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(dv__xxh64(bytes, rows[i].n, 0) == rows[i].plain);
        assert_true(dv__xxh64(bytes, rows[i].n, 0x123456789abcdef0) == rows[i].seeded);
    }
}

/* Returns the content of good.so with its digest. *at: offset of the digest. */
static unsigned char *take_stamped(size_t *size, uint64_t *at)
{
    unsigned char *data = take("good.so", size), stamp[DV__DIGEST_SIZE];
    assert_int_equal(dv_file_digest(in_dir("good.so"), at, stamp), DV_OK);
    memcpy(data + *at, stamp, sizeof stamp);
    return data;
}

static int check_all(const unsigned char *data, size_t size)
{
    const int status = check(data, size);
    return status ? status : dv__digest_check(data, "damaged.so");
}

/* True if the loader reads a byte of the file: it is in a segment or a program header. Fields that locate the sections are not.
 */
static bool is_loaded(const unsigned char *data, size_t at)
{
    Elf64_Ehdr head;
    memcpy(&head, data, sizeof head);
    const size_t shoff = offsetof(Elf64_Ehdr, e_shoff), shentsize = offsetof(Elf64_Ehdr, e_shentsize);
    if ((at >= shoff && at < shoff + sizeof head.e_shoff) || (at >= shentsize && at < sizeof head))
        return false;
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr p;
        memcpy(&p, data + head.e_phoff + i * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && at >= p.p_offset && at < p.p_offset + p.p_filesz)
            return true;
    }
    return at < head.e_phoff + head.e_phnum * sizeof(Elf64_Phdr);
}

/* Opens damaged content in a child process. Returns true if it was loaded. A signal or 20 s of CPU time fail the test. */
static bool opens(const unsigned char *data, size_t size, const char *how_damaged, unsigned number)
{
    int how;
    put("flipped.so", data, size);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        open_flipped();
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) > 1)
        fail_msg("%s %u ended the process: status %#x", how_damaged, number, (unsigned)how);
    return WEXITSTATUS(how) == 0;
}

/* Flips one bit or all bits of each loaded byte, the note and its digest included: the binary is refused. */
static void test_each_loaded_byte(void **state)
{
    uint64_t at;
    size_t size, loaded = 0;
    unsigned char *good = take_stamped(&size, &at);
    (void)state;
    assert_int_equal(check_all(good, size), DV_OK);
    for (size_t i = 0; i < size; i++) {
        if (!is_loaded(good, i))
            continue;
        loaded++;
        for (int how = 0; how < 3; how++) {
            const unsigned char flip = (const unsigned char[]){ (unsigned char)(1u << i % 8), 0x80, 0xff }[how];
            good[i] ^= flip;
            if (!check_all(good, size))
                fail_msg("byte %zu of %zu with %#x flipped is not refused", i, size, flip);
            good[i] ^= flip;
        }
    }
    assert_true(loaded > 2000);
    assert_int_equal(check_all(good, size), DV_OK);
    memset(good + at, 0, DV__DIGEST_SIZE); /* an empty note: the binary has no digest, and loads */
    assert_int_equal(check_all(good, size), DV_OK);
    good[at - 24] ^= 1; /* a damaged note is refused, even if it is empty */
    assert_int_equal(check_all(good, size), DV_EBINARY);
    assert_non_null(strstr(dv_last_error(), "damaged.so: not a usable operator binary: damaged: the note"));
    memset(good + at - 24, 0, 24 + DV__DIGEST_SIZE); /* the whole note is zeros: none is found, but the note segment is invalid */
    assert_int_equal(check_all(good, size), DV_EBINARY);
    free(good);
}

/* Changes bytes that are not loaded: the binary is refused because of its sections, or loads unchanged. */
static void test_other_bytes(void **state)
{
    uint64_t at;
    size_t size;
    unsigned char *good = take_stamped(&size, &at);
    unsigned tried = 0, fine = 0;
    (void)state;
    for (size_t i = 0; i < size; i++)
        if (!is_loaded(good, i) && (good[i] || i % 64 == 0) && (tried++ % 32 == 0 || !getenv("UNDER_QEMU"))) {
            good[i] ^= (unsigned char)(1u << i % 8);
            if (!check_all(good, size))
                fine += opens(good, size, "the flip of byte", (unsigned)i);
            good[i] ^= (unsigned char)(1u << i % 8);
        }
    assert_true(tried > 10 && fine > 0);
    free(good);
}

/* Damages the file as disks and copies do: flipped bits, blocks of zeros, of other content and of noise, lost or added bytes. The
 * loaded content is unchanged, or the binary is refused: never a signal, never an endless load. */
static void test_damage(void **state)
{
    uint64_t at, random = 20261127;
    size_t size;
    unsigned char *good = take_stamped(&size, &at), *copy = malloc(size + 4096);
    const unsigned runs = getenv("UNDER_QEMU") ? 100 : 2000;
    unsigned loaded = 0;
    (void)state;
    for (unsigned i = 0; i < runs; i++) {
        size_t now = size;
        memcpy(copy, good, size);
        memset(copy + size, 0, 4096);
        for (unsigned n = 1 + i / 5 % 4; n; n--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const size_t place = (size_t)(random >> 33) % now, from = (size_t)(random >> 20) % now;
            size_t length = 1u << (random >> 60);
            length = place + length > now ? now - place : length;
            switch (i % 5) {
            case 0: copy[place] ^= (unsigned char)(1u << (random >> 61)); break;
            case 1: memset(copy + place, 0, length); break;
            case 2: memmove(copy + place, copy + from, from + length > now ? now - from : length); break;
            case 3:
                for (size_t k = 0; k < length; k++)
                    copy[place + k] = (unsigned char)((random >> k % 57) * 31 + k);
                break;
            default: /* the rest of the file moves */
                if (now - length < 64)
                    break;
                memmove(copy + place, copy + place + length, now - place - length);
                now -= length;
            }
        }
        const bool fine = opens(copy, now, "damage", i);
        for (size_t k = 0; fine && k < size; k++)
            if (is_loaded(good, k) && (k >= now || copy[k] != good[k]))
                fail_msg("damage %u: byte %zu differs, and it was loaded", i, k);
        loaded += fine;
    }
    print_message("of %u damaged binaries %u were loaded: what differs is not loaded\n", runs, loaded);
    free(copy);
    free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xxh64),
        cmocka_unit_test(test_each_loaded_byte),
        cmocka_unit_test(test_other_bytes),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_foreign_directory),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_loader_asserts),
        cmocka_unit_test(test_flipped_dynamic),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
