#!/bin/sh
# Usage: config/uninstall.sh [OVERLAY]
# Takes MBCAS off the cluster of kubectl's current context: first every pod gets its declared
# limits back, then everything that an overlay (default: base) installed is deleted. If a pod
# cannot be restored nothing is deleted. FORCE=1 deletes all the same: such pods keep the
# limits they have until they are replaced.
set -eu

here=$(dirname "$0")
overlay=${1:-base}
wait=${WAIT:-300} # seconds that restoring may take
kubectl=${KUBECTL:-kubectl}
system=mbcas-system
marker=mbcas.io/mode-before-uninstall

if ! $kubectl get namespace "$system" >/dev/null 2>&1; then
	echo "MBCAS is not installed: $($kubectl get namespace "$system" 2>&1)"
	exit 1
fi

# modes prints each namespace that has a mode of its own, and the mode.
modes() {
	$kubectl get namespaces -l mbcas.io/mode \
		-o jsonpath='{range .items[*]}{.metadata.name} {.metadata.labels.mbcas\.io/mode}{"\n"}{end}'
}

# pending prints each pod whose limits are not known to be the declared ones.
pending() {
	$kubectl get podallocations.allocation.mbcas.io -A \
		-o jsonpath='{range .items[*]}{.status.phase}|{.metadata.namespace}/{.spec.podRef.name}|{.status.reason}|{.status.message}{"\n"}{end}' |
		awk -F '|' '$1 != "Restored" { print "  " $2 ": " $1 " " $3 ": " $4 }'
}

if $kubectl get customresourcedefinition podallocations.allocation.mbcas.io >/dev/null 2>&1 &&
	$kubectl -n "$system" get deployment mbcas-controller >/dev/null 2>&1; then
	echo "restoring the declared limits"
	if test -n "$($kubectl -n "$system" get configmap mbcas --ignore-not-found -o jsonpath='{.data.paused}')"; then
		$kubectl -n "$system" patch configmap mbcas --type=merge -p '{"data":{"paused":"false"}}'
	fi
	modes | while read -r namespace mode; do
		test "$mode" = restore || $kubectl label namespace "$namespace" --overwrite mbcas.io/mode=restore >/dev/null
		test "$mode" = restore || $kubectl annotate namespace "$namespace" --overwrite "$marker=$mode" >/dev/null
	done
	$kubectl -n "$system" set env deployment/mbcas-controller MBCAS_MODE=restore >/dev/null
	$kubectl -n "$system" rollout status deployment/mbcas-controller --timeout="${wait}s"

	waited=0
	while left=$(pending) && test -n "$left"; do
		if test "$waited" -ge "$wait"; then
			printf 'not restored after %s s:\n%s\n' "$wait" "$left"
			if test "${FORCE:-}" != 1; then
				echo "nothing was deleted; mend what the reasons say and run this again, or run it with FORCE=1"
				exit 1
			fi
			break
		fi
		sleep 1
		waited=$((waited + 1))
	done
else
	echo "no controller or no PodAllocations: there is nothing that could restore"
	if test "${FORCE:-}" != 1; then
		echo "nothing was deleted; apply the manifests again to restore, or run this with FORCE=1"
		exit 1
	fi
fi

echo "deleting MBCAS"
# Without the controller nothing follows the labels, so they can go back to what they were.
$kubectl -n "$system" delete deployment mbcas-controller --ignore-not-found --wait=true >/dev/null
$kubectl -n "$system" wait --for=delete pod -l app.kubernetes.io/component=controller --timeout=60s >/dev/null 2>&1 || true
$kubectl get namespaces -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.annotations.mbcas\.io/mode-before-uninstall}{"\n"}{end}' |
	while read -r namespace mode; do
		test -n "$mode" || continue
		$kubectl label namespace "$namespace" --overwrite "mbcas.io/mode=$mode" >/dev/null
		$kubectl annotate namespace "$namespace" "$marker-" >/dev/null
	done
$kubectl delete -k "$here/$overlay" --ignore-not-found --wait=true --timeout=120s
echo "MBCAS is gone; namespaces keep their mbcas.io/mode labels"
