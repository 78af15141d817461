SELECT AnomalyDetection_SpikeAndDip(v, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(second, 120)) AS v INTO out FROM a TIMESTAMP BY at
