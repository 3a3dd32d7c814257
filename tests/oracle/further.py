"""Further entries, all of them extra: operators beyond the required list.

They are recorded when named or with `--further`, judged like the others, and only reported. This
table is not among the sources whose digest names the recording: a line here adds files to it and
changes none. Whoever changes the `call` of a line removes its files from the recording.
"""

#: kind: entries whose function is `torch.<name>`
FUNCTIONS = {
    "reduction": "nansum nanmean aminmax median nanmedian mode",
    "fft": """fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2 fft.hfftn fft.rfft fft.rfft2 fft.rfftn
        fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
        fft.fftshift fft.ifftshift""",
    "sample": "grid_sampler_2d nn.functional.grid_sample nn.functional.ctc_loss",
    "scan": """quantile nanquantile cov corrcoef diff trapezoid trapz cumulative_trapezoid gradient
        histc histogram histogramdd isin stft istft logspace linspace""",
    "pointwise": """deg2rad rad2deg copysign heaviside nextafter ldexp frexp logaddexp2 float_power
        gcd lcm nan_to_num angle complex polar isreal positive
        special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
        special.bessel_y1 special.chebyshev_polynomial_t
        special.entr
        special.erfcx special.hermite_polynomial_h special.i0e
        special.i1 special.i1e special.laguerre_polynomial_l
        special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
        special.modified_bessel_k0 special.modified_bessel_k1 special.ndtr special.ndtri
        special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
        special.spherical_bessel_j0 special.xlog1py special.zeta i0 igamma
        igammac
        mvlgamma|mvlgamma_p_1 mvlgamma|mvlgamma_p_3""",
}
