# CMake's toolchain file for aarch64: Debian's cross-compiler; programs run under qemu. tools/setup.sh aarch64 puts cmocka into sysroot/.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(SYSROOT ${CMAKE_BINARY_DIR}/sysroot/usr)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E UNDER_QEMU=1 -E LD_LIBRARY_PATH=${SYSROOT}/lib/aarch64-linux-gnu)
set(CMAKE_C_FLAGS_INIT "-idirafter ${SYSROOT}/include")
set(CMAKE_LIBRARY_PATH ${SYSROOT}/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
