#!/bin/sh
# Usage: minikube.sh
# Builds the images, loads them into a running minikube and installs MBCAS there.
set -eu
cd "$(dirname "$0")/.."
profile=${MINIKUBE_PROFILE:-minikube}

for program in minikube docker kubectl; do
	command -v "$program" >/dev/null || {
		echo "no $program in PATH; this needs minikube (https://minikube.sigs.k8s.io), docker and kubectl. make demo needs none of them"
		exit 1
	}
done
minikube -p "$profile" status >/dev/null || {
	echo "minikube profile $profile does not run; start it with: minikube start -p $profile --kubernetes-version=v1.36.0"
	exit 1
}
for part in agent controller; do
	docker build --target "$part" -t "mbcas.io/$part:dev" .
	minikube -p "$profile" image load "mbcas.io/$part:dev"
done
kubectl --context "$profile" apply -k config/overlays/minikube
kubectl --context "$profile" -n mbcas-system rollout status deployment/mbcas-controller --timeout=180s
kubectl --context "$profile" -n mbcas-system rollout status daemonset/mbcas-agent --timeout=180s
echo "installed; KUBECTL=\"kubectl --context $profile\" config/uninstall.sh takes it off again, restoring first"
