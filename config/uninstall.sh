#!/bin/sh
# Usage: config/uninstall.sh
# Takes MBCAS off the cluster of kubectl's current context: first every pod gets its declared
# limits back, then what config/base installed is deleted. If a pod cannot be restored nothing
# is deleted. FORCE=1 deletes all the same: such pods keep their limits until they are replaced.
set -eu

here=$(dirname "$0")
kubectl=${KUBECTL:-kubectl}
system=mbcas-system

if ! said=$($kubectl get namespace "$system" 2>&1); then
	echo "MBCAS is not installed here: $said" >&2
	exit 1
fi

# The controller pauses itself and restores with its own rights.
echo "restoring the declared limits"
if ! $kubectl -n "$system" exec deployment/mbcas-controller -- /mbcas-controller restore --all --timeout "${TIMEOUT:-5m}"; then
	if test "${FORCE:-}" != 1; then
		echo "nothing was deleted; run this again once the above is mended, or restore with your own rights (kubectl mbcas restore --all -A) and run this with FORCE=1" >&2
		exit 1
	fi
	echo "not everything is restored; going on because of FORCE=1"
fi

echo "deleting MBCAS"
$kubectl delete -k "$here/base" --ignore-not-found --wait=true --timeout=120s
$kubectl delete clusterrole mbcas-plugin mbcas-plugin-resize --ignore-not-found # of components/plugin-users
echo "MBCAS is gone; labels mbcas.io/mode of namespaces stay and do nothing"
