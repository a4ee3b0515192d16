#!/bin/bash
# Run a command in this checkout on the stock kernel of Debian, in QEMU: for tests of kernel TLS where the kernel of the
# machine has none. Needs root, and the packages qemu-system-x86, busybox-static, kmod and cpio.
#
#     tests/network/in_debian_kernel.sh '.venv/bin/python -m pytest -q -p no:cacheprovider tests/network/test_tls.py'
#
# The guest sees the file system of this machine; what it writes is lost when it ends. Without KVM (ACCEL=kvm) it is
# about ten times slower than the machine, so that tests with a tight time limit may fail. The exit code is that of the
# command. The kernel's package is downloaded once into CACHE (/var/tmp/kafkapy-kernel).
set -euo pipefail

checkout=$(cd "$(dirname "$0")/../.." && pwd)
cache=${CACHE:-/var/tmp/kafkapy-kernel}
modules="virtio_pci 9pnet_virtio 9p overlay virtio_rng tls gcm chacha20poly1305 chacha_generic poly1305_generic aesni_intel"
PATH=$PATH:/sbin:/usr/sbin

for program in qemu-system-x86_64 busybox modprobe cpio; do
    command -v $program >/dev/null || { echo "$program is missing: apt-get install qemu-system-x86 busybox-static kmod cpio" >&2; exit 2; }
done
if ! ls "$cache"/lib/modules >/dev/null 2>&1; then
    mkdir -p "$cache"
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)
    (cd "$cache" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb . && rm -f "$package"_*.deb)
    depmod -b "$cache" "$(ls "$cache/lib/modules")"
fi
release=$(ls "$cache/lib/modules")

root=$(mktemp -d)
trap 'rm -rf "$root" "$root.img" "$root.out"' EXIT
mkdir -p "$root"/{bin,modules,host,changes,new,proc,sys,dev}
cp "$(command -v busybox)" "$root/bin/busybox"
for module in $modules; do
    modprobe -d "$cache" -S "$release" --show-depends "$module" | sed -n 's/^insmod //p'
done | awk '!seen[$1]++ {print $1}' | while read -r path; do
    cp "$path" "$root/modules/"
    basename "$path" >>"$root/order"
done
printf 'export HOME=/root LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PATH=%q\ncd %q\n%s\n' \
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$checkout" "$*" >"$root/command"
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
while read -r name; do insmod "/modules/$name" 2>/dev/null || echo "cannot load $name"; done </order
mount -t 9p -o trans=virtio,version=9p2000.L,cache=loose,msize=512000,ro host /host
mount -t tmpfs -o size=60% changes /changes; mkdir /changes/upper /changes/work
mount -t overlay overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work,xino=off /new
for one in proc sys dev; do mount --move /$one /new/$one; done
mkdir -p /new/dev/shm /new/dev/pts
mount -t tmpfs shm /new/dev/shm; mount -t devpts pts /new/dev/pts; mount -t tmpfs -o size=60% tmp /new/tmp
ip link set lo up
cp /command /new/tmp/command
chroot /new /bin/bash /tmp/command
echo "exit code $?"
echo o >/new/proc/sysrq-trigger
sleep 60
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1 >"$root.img")

accelerator=${ACCEL:-tcg}
qemu-system-x86_64 -accel "$accelerator" -cpu "$([ "$accelerator" = kvm ] && echo host || echo max)" \
    -smp 2 -m "${MEMORY:-4096}" -nographic -no-reboot -monitor none -net none \
    -kernel "$cache/boot/vmlinuz-$release" -initrd "$root.img" \
    -append "console=ttyS0 quiet no_timer_check panic=-1" \
    -object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,rng=random \
    -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=host,mount_tag=host </dev/null | tee "$root.out"
exit "$(sed -n 's/^.*exit code \([0-9]*\).*$/\1/p' "$root.out" | tail -1 | grep . || echo 1)"
