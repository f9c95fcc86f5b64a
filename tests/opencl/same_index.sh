#!/usr/bin/env bash
# same_index.sh BUILD_DIR [DEVICE] - indexes built with a device and without are the same, byte for byte: page graph and
# inverted lists, of the SIFT and the text sample in $QUIRE_DATA, or of as many rows of `quire gen` where that is not set.
#
# DEVICE: part of the name of an OpenCL device (pthread, which is pocl's). Some minutes on two cores: ./check --full.
set -uo pipefail
build=$(cd "${1:?usage: same_index.sh BUILD_DIR [DEVICE]}" && pwd) || exit 2
device=${2:-pthread}
quire=$build/quire
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-same-index.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

if ! "$quire" probe --gpu "$device" --json 2>/dev/null | grep -q '"device_way"'; then
    echo "ok - left out: there is no OpenCL device with '$device' in its name"
    exit 0
fi

# same NAME BASE METRIC
same() {
    local name=$1 base=$2 metric=$3 kind gpu
    for kind in pagegraph spann; do
        for gpu in off "$device"; do
            if ! LD_PRELOAD=$build/libfixed_random.so "$quire" build --base "$base" --out "$work/$gpu" --index "$kind" \
                --metric "$metric" --block 8K --gpu "$gpu" --json >"$work/$gpu.json" 2>"$work/error"; then
                echo "FAIL - $name, $kind, --gpu $gpu: $(tail -1 "$work/error")"
                failed=1
                return
            fi
        done
        if grep -q '"device": "processor"' "$work/$device.json"; then
            echo "FAIL - $name, $kind: no device was used: $(grep device_note "$work/$device.json")"
            failed=1
        elif diff -r "$work/off" "$work/$device" >"$work/differences"; then
            echo "ok - $name, $kind: $(du -sb "$work/off" | cut -f1) bytes, the same with $device and without"
        else
            echo "FAIL - $name, $kind: $(head -3 "$work/differences")"
            failed=1
        fi
        rm -rf "$work/off" "$work/$device"
    done
}

if [[ ${QUIRE_DATA:-} ]]; then
    same sift-50k "$QUIRE_DATA/sift-50k.u8bin" l2
    same text-20k "$QUIRE_DATA/text-20k.fbin" cosine
else
    "$quire" gen --rows 20000 --dim 128 --queries 0 --out "$work/gen" >"$work/gen.log" || exit 1
    same gen-20k "$work/gen.fbin" cosine
fi
exit "$failed"
