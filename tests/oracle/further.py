"""Further entries, all of them extra: operators beyond the required list.

They are recorded and judged like the others, and only reported. This table is not among the sources
whose digest names the recording: a line here adds files to it and changes none. Whoever changes the
`call` of a line removes its files from the recording.
"""

#: kind: entries whose function is `torch.<name>`
FUNCTIONS = {
    "reduction": "nansum nanmean aminmax median nanmedian mode",
    "fft": """fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn
        fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
        fft.fftshift fft.ifftshift""",
    "scan": """quantile nanquantile cov corrcoef diff trapezoid trapz cumulative_trapezoid gradient
        histc histogram histogramdd isin""",
    "pointwise": """deg2rad rad2deg copysign heaviside nextafter ldexp frexp logaddexp2 float_power
        gcd lcm nan_to_num angle complex polar isreal positive""",
}
